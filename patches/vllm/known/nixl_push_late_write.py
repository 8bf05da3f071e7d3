"""vllm.nixl-push-late-write, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.nixl-push-late-write",
    title="A request is given another one's KV when the lease runs out before its push is over (NIXL push)",
    symptom="The prefill server frees blocks that it is about to push, or is pushing, and another request fills them.",
    symptoms=(GARBAGE,),
    releases=(">=0.24.0,<=0.33.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker:NixlPushConnectorWorker._do_start_push_kv",),
    upstream=Upstream("vllm-project/vllm", pull=55470),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlPushConnector", "MultiConnector"),
        Unseen("a push that is not over when heartbeats of the decode server stay away for `kv_lease_duration` (30 s)"),
    ),
    avoid="Raise `kv_lease_duration` in `kv_connector_extra_config`.",
)
