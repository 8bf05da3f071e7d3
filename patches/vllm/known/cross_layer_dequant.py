"""vllm.cross-layer-dequant, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, KV_SCALES

BUG = KnownBug(
    id="vllm.cross-layer-dequant",
    title="Garbage prefill with an offloaded FP8 KV cache and a BF16 query (TRT-LLM kernels)",
    symptom="Prompts are answered with garbage: the dequantisation reads KV as if the pages of a layer lay side by side.",
    symptoms=(KV_SCALES, CACHED_PREFIX),
    releases=(">=0.18.0,<0.19.0",),
    code=("vllm.v1.attention.backends.flashinfer:trtllm_prefill_attn_kvfp8_dequant",),
    upstream=Upstream("vllm-project/vllm", pull=36867),
    hits=AllOf(
        Is("compute capability", 100, 103),
        Is("attention backend", "FLASHINFER"),
        Is("name of the KV connector", "OffloadingConnector", "NixlConnector"),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        Given("--attention-config.disable_flashinfer_q_quantization"),
        Unseen(
            "TRT-LLM kernels for prefill, and all layers in one block: NixlConnector has it with enable_cross_layers_blocks"
        ),
    ),
    avoid="Leave --attention-config.disable_flashinfer_q_quantization out.",
)
