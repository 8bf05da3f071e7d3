"""vllm.abort-two-transfers, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.abort-two-transfers",
    title="The server dies when a request is aborted that both loads and saves KV (LMCache, offloading)",
    symptom="The engine ends with an AssertionError in `_update_from_kv_xfer_finished`: one transfer frees the other.",
    symptoms=(DIES,),
    releases=(">=0.16.0,<=0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._update_from_kv_xfer_finished",),
    upstream=Upstream("vllm-project/vllm", issue=46240, pull=56089),
    hits=AllOf(
        AnyOf(
            Is("--kv-transfer-config.kv_connector", "MultiConnector", "LMCacheMPConnector", "HF3FSKVConnector"),
            AllOf(Not(Since("0.21.0")), Is("--kv-transfer-config.kv_connector", "OffloadingConnector")),
            AllOf(Not(Since("0.21.0")), Given("--kv-offloading-size"), Not(Is("--kv-offloading-backend", "lmcache"))),
        ),
        Unseen("requests that are aborted while their KV is loaded, with OffloadingConnector behind a preemption"),
    ),
    avoid="Take NixlConnector or LMCacheConnectorV1 alone.",
    harm=CRASH,
)
