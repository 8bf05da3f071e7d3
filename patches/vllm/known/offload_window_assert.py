"""vllm.offload-window-assert, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="vllm.offload-window-assert",
    title="The engine dies at the load of an offloaded prefix (OffloadingConnector, sliding-window layers)",
    symptom="An `AssertionError` in `update_state_after_alloc`: a window that begins within a block spans one more.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.21.0,<0.27.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler:OffloadingConnectorScheduler.update_state_after_alloc",
    ),
    upstream=Upstream("vllm-project/vllm", pull=49052, issue=48959),
    harm=CRASH,
    hits=AllOf(
        Is("sliding-window layers", ON),
        Is("name of the KV connector", "OffloadingConnector"),
        Unseen("a window of which offloaded chunks have no block to spare, and a hit that ends within one"),
    ),
    avoid="Start without the connector, or with SimpleCPUOffloadConnector.",
)
