"""vllm.skipped-layer-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

from . import wrap

_QUANTIZATION = "vllm.model_executor.layers.quantization"
_COMPRESSED = f"{_QUANTIZATION}.compressed_tensors.compressed_tensors"
_METHOD = f"{_COMPRESSED}:CompressedTensorsKVCacheMethod"
_ATTENTION = "vllm.model_executor.layers.attention.attention"
_FLASHINFER = "vllm.v1.attention.backends.flashinfer"

FIX = Fix(
    id="vllm.skipped-layer-scales",
    title="Garbage with calibrated KV scales where layers keep their dtype (FLASHINFER)",
    symptom=(
        "A compressed-tensors checkpoint with calibrated scales of the KV cache answers badly or with garbage on FLASHINFER, "
        "where layers keep their dtype. Layers keep it with --kv-cache-dtype-skip-layers. From 0.22.0 on, all keep it with "
        "--kv-cache-dtype bfloat16 or float16. FLASH_ATTN answers right. No error."
    ),
    symptoms=(KV_SCALES, GARBAGE),
    cause=(
        "Loading a compressed-tensors checkpoint sets every layer's scales, whether or not its cache is quantised. "
        "FlashInfer's wrappers multiply by them. Nothing was divided by them when the cache was written."
    ),
    correction=(
        "Of a layer whose cache is not quantised, the loaded scales of keys, values and queries are set to 1 before the engine "
        "makes its tensors and numbers of them. Other loaders leave 1 for keys and values, too."
    ),
    upstream=Upstream("vllm-project/vllm", report="vllm-flashinfer-skipped-layer"),
    hardware="NVIDIA GPUs (FLASHINFER); compressed-tensors checkpoints with kv_cache_scheme, and layers left unquantised",
    targets=(
        Target(
            wrap.process_weights_after_loading,
            needed=wrap.of_no_use,
            paths=(f"{_METHOD}.process_weights_after_loading",),
        ),
    ),
    # Who gets this method, and parameters to load scales into; which caches are quantised; who multiplies
    witnesses=(
        f"{_METHOD}.create_weights",
        f"{_COMPRESSED}:CompressedTensorsConfig.get_quant_method",
        f"{_QUANTIZATION}.kv_cache:BaseKVCacheMethod.process_weights_after_loading",
        "vllm.utils.torch_utils:is_quantized_kv_cache",
        "vllm.v1.kv_cache_interface:is_quantized_kv_cache",
        "vllm.v1.kv_cache_interface:get_kv_quant_mode",
        "vllm.attention.layer:Attention.__init__",
        f"{_ATTENTION}:Attention.__init__",
        f"{_ATTENTION}:_init_kv_cache_quant",
        f"{_ATTENTION}:set_default_quant_scales",
        f"{_FLASHINFER}:FlashInferImpl.__init__",
        f"{_FLASHINFER}:FlashInferImpl.forward",
        f"{_FLASHINFER}:BatchDCPPrefillWrapper.run",
    ),
    remove_when="a release of vLLM is served that leaves these scales 1: attnfix then sees it and does nothing",
    cost="Three scalars read from the GPU for each such layer while the model is loaded; nothing while it serves.",
    expect=(
        "On one replica with --attention-backend FLASHINFER, answers at temperature 0 become close to those of the same "
        "checkpoint with FLASH_ATTN. A checkpoint without calibrated scales answers as before, bit for bit."
    ),
    look_does="its look reads values on the GPU",
    hits=AllOf(
        Is("KV cache scales", "compressed-tensors"),
        Is("layers left unquantised", ON),
        Is("kernels of the attention backend", "FlashInfer"),
    ),
)
