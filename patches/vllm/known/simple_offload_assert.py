"""vllm.simple-offload-assert, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="vllm.simple-offload-assert",
    title="The engine dies on a prefix that the CPU cache has just dropped (simple KV offloading)",
    symptom="Blocks found in the CPU cache are not held until they are loaded: `Expected N hit tokens, got 0` ends the engine.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.19.0,<0.22.0",),
    code=("vllm.v1.simple_kv_offload.manager:SimpleCPUOffloadScheduler.update_state_after_alloc",),
    upstream=Upstream("vllm-project/vllm", issue=39702),
    hits=AllOf(
        AnyOf(
            Is("--kv-transfer-config.kv_connector", "SimpleCPUOffloadConnector"),
            AllOf(Given("--kv-offloading-size"), Given("$VLLM_USE_SIMPLE_KV_OFFLOAD")),
        ),
        Unseen("a CPU cache that is full"),
    ),
    avoid="Give the CPU cache more room, or use OffloadingConnector.",
    harm=CRASH,
)
