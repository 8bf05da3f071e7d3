"""vllm.offload-beside-transfer, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.offload-beside-transfer",
    title="Offloaded prefixes hold KV of another request (OffloadingConnector beside NIXL in a MultiConnector)",
    symptom="Blocks that still wait to be copied to the CPU are filled by the other connector, and the copy is kept.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.21.0,<0.33.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler:OffloadingConnectorScheduler.update_state_after_alloc",
    ),
    upstream=Upstream("vllm-project/vllm", issue=46951),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MultiConnector"),
        Unseen("an OffloadingConnector in it, beside one that loads asynchronously, as NixlConnector"),
    ),
    avoid="Take one connector alone, or SimpleCPUOffloadConnector beside the other.",
)
