"""sglang.trtllm-mla-bf16-scale, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

from . import wrap

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend"

FIX = Fix(
    id="sglang.trtllm-mla-bf16-scale",
    title="Garbage from calibrated checkpoints over a 16-bit KV cache (TRT-LLM MLA)",
    symptom=(
        "DeepSeek-type checkpoints with calibrated scales of the KV cache answer with garbage: repetitions or random tokens. "
        "They are served with a cache of 16 bits on TRT-LLM MLA. No error."
    ),
    symptoms=(KV_SCALES, GARBAGE),
    cause=(
        "The checkpoint's scale of keys is loaded whatever the cache is. Decode and verification multiply the scores by it, "
        "though keys of a 16-bit cache were never divided by it."
    ),
    correction="Over a cache of 16 bits a layer attends without that scale. FP8 and FP4 caches stay as they are.",
    upstream=Upstream("sgl-project/sglang", pull=18396),
    hardware="Blackwell (--attention-backend trtllm_mla)",
    default=True,
    default_reason="silent wrong output; later releases ignore the scale in the same way",
    targets=(
        Target(wrap.forward, needed=wrap.scales_what_is_not_scaled, paths=(f"{_BACKEND}.forward_decode",)),
        Target(wrap.forward, needed=wrap.scales_what_is_not_scaled, paths=(f"{_BACKEND}.forward_extend",)),
    ),
    # What makes the scale, what else is called with it, and the modes
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}._run_decode_kernel",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode",
        "sglang.srt.layers.quantization.kv_cache:BaseKVCacheMethod.process_weights_after_loading",
    ),
    cost="A look at the layer's scale per layer and step without a CUDA graph, and at a capture; nothing at replay.",
    avoid=(
        "Set `--attention-backend flashinfer --flashinfer-mla-disable-ragged`: its MLA kernels take no scale; prefill "
        "slows. An FP8 cache is no way: its keys are not divided either."
    ),
    expect=(
        "On one replica with such a checkpoint and --kv-cache-dtype bf16, at temperature 0: garbage becomes the answer that "
        "another attention backend gives. With an FP8 cache nothing changes."
    ),
    independent=True,  # up to 0.5.1.post3 there is decode alone
    hits=AllOf(
        AnyOf(Is("decode backend", "trtllm_mla"), Is("verify backend", "trtllm_mla")),
        Is("KV cache scales", "unused"),
    ),
)
