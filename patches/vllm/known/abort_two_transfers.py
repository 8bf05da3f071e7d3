"""vllm.abort-two-transfers, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.abort-two-transfers",
    title="The server dies when an aborted request both loads and saves KV (MultiConnector)",
    symptom="The engine ends with an AssertionError in `_update_from_kv_xfer_finished`: one transfer frees the other.",
    symptoms=(DIES,),
    releases=(">=0.16.0,<=0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._update_from_kv_xfer_finished",),
    upstream=Upstream("vllm-project/vllm", issue=46240, pull=56089),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MultiConnector"),
        Unseen("requests that are aborted while one connector loads their KV and another saves it"),
    ),
    avoid="Take one connector alone.",
    harm=CRASH,
)
