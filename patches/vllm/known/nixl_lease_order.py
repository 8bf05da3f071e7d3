"""vllm.nixl-lease-order, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.nixl-lease-order",
    title="KV of which the lease ran out stays on the prefill server (NIXL)",
    symptom="Leases are ended in the order of arrival only: one that is renewed holds back all behind it, and prefill waits.",
    symptoms=(SLOW,),
    releases=(">=0.22.0,<0.31.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.worker:NixlConnectorWorker.get_finished",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker:NixlBaseConnectorWorker.get_transfer_results",
    ),
    upstream=Upstream("vllm-project/vllm", issue=58222),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlConnector", "NixlPullConnector", "NixlPushConnector", "MultiConnector"),
        Unseen("requests that no decode server fetches, while others wait long for one"),
    ),
    avoid="Nothing within the release ends them sooner; add decode servers until requests no longer wait there.",
    harm=SLOWER,
)
