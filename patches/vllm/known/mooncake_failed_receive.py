"""vllm.mooncake-failed-receive, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

_AT = "vllm.distributed.kv_transfer.kv_connector.v1."
BUG = KnownBug(
    id="vllm.mooncake-failed-receive",
    title="A request whose KV transfer fails is never answered and keeps its blocks (Mooncake)",
    symptom="The decode server logs that the pull failed and waits on, until such requests have taken the whole KV cache.",
    symptoms=(DIES,),
    releases=(">=0.13.0,<0.30.0",),
    code=(
        _AT + "mooncake_connector:MooncakeConnectorWorker.receive_kv",
        _AT + "mooncake.mooncake_connector:MooncakeConnectorWorker.process_pulling_result",
    ),
    upstream=Upstream("vllm-project/vllm", issue=35943),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MooncakeConnector", "MultiConnector"),
        Not(Is("--kv-transfer-config.kv_role", "kv_producer")),
        Unseen("transfers that fail, as of a prefill server that restarts"),
    ),
    avoid="Nothing within the release gives the blocks back: restart decode servers after a prefill server failed.",
    harm=CRASH,
)
