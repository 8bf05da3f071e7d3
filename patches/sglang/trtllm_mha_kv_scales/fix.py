"""sglang.trtllm-mha-kv-scales, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import KV_SCALES

from . import wrap

_MODULE = "sglang.srt.layers.attention.trtllm_mha_backend"
_BACKEND = f"{_MODULE}:TRTLLMHAAttnBackend"
_POOL = "sglang.srt.mem_cache.memory_pool:MHATokenToKVPool"

FIX = Fix(
    id="sglang.trtllm-mha-kv-scales",
    title="Bad answers from checkpoints with calibrated KV scales (TRT-LLM MHA)",
    symptom=(
        "Checkpoints with calibrated scales of the KV cache answer badly on TRT-LLM MHA with an FP8 cache. Over a cache of 16 "
        "bits they answer with garbage. No error."
    ),
    symptoms=(KV_SCALES,),
    cause=(
        "Values are divided by their scale when they are stored in FP8. The kernel is told 1 in its place, so attention comes "
        "out too large or too small by it. The scale of keys is told whatever the cache is, though keys of a 16-bit cache "
        "were never divided by it."
    ),
    correction=(
        "Over an FP8 cache the result is multiplied by the scale of values; over one of 16 bits a layer attends without the "
        "scale of keys. The query stays FP8 with a scale of 1, as in 0.5.15 and later."
    ),
    upstream=Upstream("sgl-project/sglang", pull=28144, issue=26518),
    hardware="Blackwell (trtllm_mha: the default on B200 and B300 from 0.5.7 on)",
    default=True,
    default_reason="silent wrong output; later releases apply the same scales",
    targets=(
        Target(wrap.forward, needed=wrap.misapplied, paths=(f"{_BACKEND}.forward_decode",)),
        Target(wrap.forward, needed=wrap.misapplied, paths=(f"{_BACKEND}.forward_extend",)),
    ),
    # What divides by which scales, and with which the kernels are called
    witnesses=(
        f"{_BACKEND}._get_bmm_scales",
        f"{_BACKEND}._maybe_quantize_q",
        f"{_BACKEND}._should_use_fused_fp8_path",
        f"{_BACKEND}._fused_fp8_set_kv_buffer",
        f"{_BACKEND}._get_layer_cache_loc",
        f"{_BACKEND}._get_layer_page_table",
        f"{_POOL}.set_kv_buffer",
        f"{_POOL}.get_kv_buffer",
        "sglang.srt.layers.attention.triton_ops.trtllm_fp8_kv_kernel:",
        "sglang.srt.layers.quantization.kv_cache:BaseKVCacheMethod.process_weights_after_loading",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode",
        "sglang.srt.environ:EnvField",
    ),
    cost=(
        "With such a checkpoint and an FP8 cache one multiplication of a layer's result; else a look at the layer's scales "
        "per layer and step without a CUDA graph."
    ),
    avoid=(
        "Set `--attention-backend triton --kv-cache-dtype fp8_e4m3`: scales are used in writing and reading alike; "
        "decode slows. 0.5.14 is mended."
    ),
    expect=(
        "On one replica with such a checkpoint, at temperature 0: answers become those of another attention backend up to "
        "rounding. Checkpoints without scales, or with scales of 1, stay the same."
    ),
    hits=AllOf(
        Is("attention", "MHA"),
        AnyOf(Is("prefill backend", "trtllm_mha"), Is("decode backend", "trtllm_mha")),
        Is("KV cache scales", "calibrated FP8", "unused"),
    ),
)
