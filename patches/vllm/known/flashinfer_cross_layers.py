"""vllm.flashinfer-cross-layers, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.flashinfer-cross-layers",
    title="No server starts with KV offloading or NIXL's cross-layer blocks on Blackwell (FlashInfer, TRT-LLM)",
    symptom="The server ends with an AssertionError on `kv_cache_permute`, although the kernels take such strides.",
    symptoms=(DIES,),
    releases=(">=0.12.0,<0.16.0", ">=0.17.0,<0.18.0"),
    code=("vllm.v1.attention.backends.flashinfer:FlashInferImpl.forward",),
    upstream=Upstream("vllm-project/vllm", issue=33572, pull=34158),
    hits=AllOf(
        AllOf(Is("attention backend", "FLASHINFER"), Is("compute capability", 100, 103)),
        AnyOf(
            Is("--kv-transfer-config.kv_connector", "OffloadingConnector"),
            AllOf(
                Since("0.17.0"),
                Is("--kv-transfer-config.kv_connector", "NixlConnector"),
                Given("--kv-transfer-config.kv_connector_extra_config"),
            ),
            AllOf(Since("0.14.0"), Given("--kv-offloading-size"), Not(Is("--kv-offloading-backend", "lmcache"))),
        ),
        Unseen("whether kernels of TRT-LLM serve the model, and enable_cross_layers_blocks for NIXL"),
    ),
    avoid="Take another attention backend.",
    harm=CRASH,
)
