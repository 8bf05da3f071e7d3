"""vllm.kv-scale-float, as data."""

from attnfix.compat.condition import AllOf, Is
from attnfix.compat.fix import WRONG_OUTPUT, Fix, Target, Upstream

from . import wrap

_COMPRESSED = "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors"
_METHOD = f"{_COMPRESSED}:CompressedTensorsKVCacheMethod"
_FLASHINFER = "vllm.v1.attention.backends.flashinfer"
_BASE = "vllm.model_executor.layers.quantization.kv_cache:BaseKVCacheMethod"

FIX = Fix(
    id="vllm.kv-scale-float",
    title="Scales of a calibrated FP8 KV cache are read as 1",
    symptom=(
        "Garbage, or answers far worse than the unquantised model's, from a checkpoint whose FP8 KV cache was calibrated by "
        "llm-compressor, with a backend that takes scales as numbers (FlashInfer, TRT-LLM, FlashInfer MLA). FlashAttention, "
        "which reads the tensors, answers right. No error."
    ),
    cause=(
        "Loading a compressed-tensors checkpoint sets the scales' tensors, by which keys and values are divided when they are "
        "written. Their copies as Python numbers, by which these backends multiply what they read, stay 1. (0.10.2 forgets the "
        "query's alone, of any FP8 checkpoint.)"
    ),
    correction=(
        "After a layer of such a backend has loaded its scales, the numbers are set to them; of several scales, to the largest."
    ),
    upstream=Upstream("vllm-project/vllm", pull=34863),
    hardware="any GPU (compressed-tensors checkpoints with kv_cache_scheme, backends other than FlashAttention)",
    default=True,
    default_reason="silent wrong output; later releases set the same numbers",
    targets=(
        Target(
            wrap.process_weights_after_loading,
            at=(f"{_METHOD}.process_weights_after_loading", f"{_BASE}.process_weights_after_loading"),
        ),
    ),
    # What holds the scales until they are loaded, and whether the backend multiplies by the query's
    witnesses=(f"{_METHOD}.create_weights", f"{_BASE}.process_weights_after_loading", f"{_FLASHINFER}:FlashInferImpl.forward"),
    examined=(">=0.10.0",),
    remove_when="no vLLM below 0.20.0 is served",
    cost="Three scalars read from the GPU per attention layer while the model is loaded; nothing while it serves.",
    expect=(
        "On one replica with --attention-backend FLASHINFER, answers become those of the same checkpoint with FLASH_ATTN. A "
        "checkpoint without calibrated scales answers as before, bit for bit."
    ),
    harm=WRONG_OUTPUT,
    hits=AllOf(
        Is("KV cache scales", "compressed-tensors"),
        Is("attention backend", "FLASHINFER", "FLASHINFER_MLA", "FLASHINFER_MLA_SPARSE", "ROCM_AITER_UNIFIED_ATTN"),
    ),
)
