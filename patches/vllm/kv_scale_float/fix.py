"""vllm.kv-scale-float, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

from . import wrap

_COMPRESSED = "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors"
_METHOD = f"{_COMPRESSED}:CompressedTensorsKVCacheMethod"
_BASE = "vllm.model_executor.layers.quantization.kv_cache:BaseKVCacheMethod"
_BACKENDS = "vllm.v1.attention.backends"
_FLASHINFER, _AITER = f"{_BACKENDS}.flashinfer", f"{_BACKENDS}.rocm_aiter_unified_attn"

FIX = Fix(
    id="vllm.kv-scale-float",
    title="Garbage with a calibrated FP8 KV cache (FlashInfer, TRT-LLM, AITER)",
    symptom=(
        "Garbage, or answers far worse than the unquantised model's, from a checkpoint whose FP8 KV cache was calibrated by "
        "llm-compressor. Backends are hit that take scales as numbers: FlashInfer and TRT-LLM, and AITER's unified attention "
        "from 0.19.0. FlashAttention, which reads the tensors, answers right. No error."
    ),
    symptoms=(KV_SCALES, GARBAGE),
    cause=(
        "Loading a compressed-tensors checkpoint sets the scales' tensors, by which keys and values are divided when they are "
        "written. Their copies as Python numbers, by which these backends multiply what they read, stay 1. (0.10.2 forgets the "
        "query's alone, of any FP8 checkpoint.)"
    ),
    correction=(
        "After a layer of such a backend has loaded its scales, the numbers are set to them, where its cache is quantised; of "
        "several scales, to the largest. The query's is left at 1 where queries are not quantised; the pages that TRT-LLM's "
        "prefill then reads are copied without scales, since the numbers are multiplied afterwards. When the engine sets the "
        "tensors to 1 after it has slept, they are set to the numbers again."
    ),
    upstream=Upstream("vllm-project/vllm", pull=39418),
    hardware="NVIDIA GPUs (FLASHINFER), AMD (ROCM_AITER_UNIFIED_ATTN); compressed-tensors checkpoints with kv_cache_scheme",
    default=True,
    default_reason="silent wrong output; later releases set the same numbers",
    targets=(
        Target(
            wrap.process_weights_after_loading,
            paths=(f"{_METHOD}.process_weights_after_loading", f"{_BASE}.process_weights_after_loading"),
        ),
        Target(
            wrap.trtllm_prefill_attn_kvfp8_dequant,
            needed=wrap.are_in_numbers,
            paths=(f"{_FLASHINFER}:trtllm_prefill_attn_kvfp8_dequant",),
        ),
        Target(wrap.wake_up, paths=("vllm.v1.worker.gpu_worker:Worker.wake_up",)),
    ),
    # What holds the scales until they are loaded, and for which layers; which caches and queries are quantised; who multiplies;
    # what becomes of them when a server wakes up
    witnesses=(
        f"{_METHOD}.create_weights",
        f"{_BASE}.process_weights_after_loading",
        f"{_COMPRESSED}:CompressedTensorsConfig.get_quant_method",
        "vllm.attention.layer:Attention.__init__",
        "vllm.model_executor.layers.attention.attention:Attention.__init__",
        f"{_FLASHINFER}:FlashInferImpl.__init__",
        f"{_FLASHINFER}:FlashInferImpl.forward",
        f"{_AITER}:RocmAiterUnifiedAttentionImpl.__init__",
        f"{_AITER}:RocmAiterUnifiedAttentionImpl.forward",
        "vllm.platforms.interface:Platform.is_fp8_fnuz",
        "vllm.platforms.rocm:RocmPlatform.is_fp8_fnuz",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.init_fp8_kv_scales",
    ),
    independent=True,  # a server of AMD GPUs never loads FlashInfer's backend
    cost=(
        "Three scalars read from the GPU per attention layer while the model is loaded; nothing while it serves, but where "
        "TRT-LLM's prefill runs for queries that are not quantised: two tensors of one value per layer and prefill."
    ),
    avoid=(
        "Start with `--attention-backend FLASH_ATTN` on Hopper, `TRITON_ATTN` elsewhere: both read the scales' "
        "tensors; up to 0.12.0 by `VLLM_ATTENTION_BACKEND`."
    ),
    expect=(
        "On one replica with --attention-backend FLASHINFER, answers become those of the same checkpoint with FLASH_ATTN. A "
        "checkpoint without calibrated scales answers as before, bit for bit."
    ),
    hits=AllOf(
        Is("KV cache scales", "compressed-tensors"),
        Is("scales of the attention backend", "numbers"),
    ),
)
