"""vllm.nixl-push-unreported, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.nixl-push-unreported",
    title="A prefill server keeps KV that it has pushed until the lease runs out (NIXL push)",
    symptom="A push that succeeds is never reported, so its blocks stay taken for up to 30 seconds and prefill waits for room.",
    symptoms=(SLOW,),
    releases=(">=0.30.0,<0.31.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker:NixlPushConnectorWorker.get_transfer_results",),
    upstream=Upstream("vllm-project/vllm", pull=58188),
    hits=AllOf(
        Is("name of the KV connector", "NixlPushConnector"),
        Not(Is("--kv-transfer-config.kv_role", "kv_consumer")),
    ),
    avoid="Use `NixlConnector`, which pulls.",
    harm=SLOWER,
)
