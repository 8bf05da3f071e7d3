"""vllm.nixl-push-lease, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.nixl-push-lease",
    title="A request is never answered once the lease of its KV ran out (NIXL push)",
    symptom="The prefill server frees the KV and tells nobody, and the decode server waits on and keeps its blocks.",
    symptoms=(DIES,),
    releases=(">=0.24.0,<=0.33.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_scheduler:NixlPushConnectorScheduler.build_connector_meta",),
    upstream=Upstream("vllm-project/vllm", issue=53095),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlPushConnector", "MultiConnector"),
        Unseen("a decode server that has the request, or sends heartbeats, later than `kv_lease_duration` (30 s)"),
    ),
    avoid="Raise `kv_lease_duration` in `kv_connector_extra_config`.",
    harm=CRASH,
)
