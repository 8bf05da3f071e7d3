"""sglang.unified-kv-ring, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.unified-kv-ring",
    title="DeepSeek V4 on AMD GPUs reads another request's window after a prefix hit (unified_kv_triton)",
    symptom="Behind a cached prefix the window layers see KV that an earlier request left in the same slot.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.14,<0.5.20",),
    code=(
        "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache.swa_reprefill_tail_tokens",
        "sglang.srt.layers.attention.deepseek_v4_backend_hip_radix:DeepseekV4HipRadixBackend._attach_unified_kv_prefill_meta",
    ),
    upstream=Upstream("sgl-project/sglang", pull=32759),
    hits=AllOf(
        Is("GPU", AMD),
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("$SGLANG_HACK_FLASHMLA_BACKEND", "unified_kv_triton"),
        Not(Given("--disable-radix-cache")),
        Not(Is("--disaggregation-mode", "decode")),
        Not(Given("--enable-hierarchical-cache")),
    ),
    avoid="Set SGLANG_HACK_FLASHMLA_BACKEND=tilelang, or `--disable-radix-cache`.",
)
