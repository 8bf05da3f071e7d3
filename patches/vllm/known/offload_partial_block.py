"""vllm.offload-partial-block, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="vllm.offload-partial-block",
    title="The server dies when a prefix in the GPU ends within a block of the CPU (OffloadingConnector)",
    symptom="An AssertionError in `transfer_async` ends the engine: blocks to load and blocks to fill differ in number.",
    symptoms=(
        DIES,
        CACHED_PREFIX,
    ),
    releases=(">=0.11.0,<0.12.0",),
    code=("vllm.v1.kv_offload.worker.cpu_gpu:CpuGpuOffloadingHandler.transfer_async",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        AnyOf(
            Given("--kv-transfer-config.kv_connector_extra_config"),
            Given("--kv-transfer-config.kv_connector_extra_config.block_size"),
        ),
        Unseen("a `block_size` of kv_connector_extra_config above that of the GPU"),
    ),
    avoid="Leave `block_size` out of kv_connector_extra_config: it is the GPU's then.",
    harm=CRASH,
)
