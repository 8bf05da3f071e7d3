"""vllm.offload-window-assert, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Unseen
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
        AnyOf(
            Is("--kv-transfer-config.kv_connector", "OffloadingConnector"),
            AllOf(
                Given("--kv-offloading-size"),
                Not(AnyOf(Is("--kv-offloading-backend", "lmcache"), Given("$VLLM_USE_SIMPLE_KV_OFFLOAD"))),
            ),
        ),
        Unseen("a window of which offloaded chunks have no block to spare, and a hit that ends within one"),
    ),
    avoid="Start without the connector, or with SimpleCPUOffloadConnector.",
)
