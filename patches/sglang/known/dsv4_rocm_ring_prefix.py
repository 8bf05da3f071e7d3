"""sglang.dsv4-rocm-ring-prefix, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="sglang.dsv4-rocm-ring-prefix",
    title="Wrong answers of DeepSeek V4 behind a cached prefix on AMD GPUs with unified_kv_triton",
    symptom="The window of a cached prefix lies in the ring of another request. A short new turn reads stale KV instead.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.14,<0.5.20",),
    code=(
        "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache.swa_reprefill_tail_tokens",
        "sglang.srt.mem_cache.swa_radix_cache:SWARadixCache.match_prefix",
    ),
    upstream=Upstream("sgl-project/sglang", pull=32759),
    hits=AllOf(
        Is("GPU", AMD),
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("$SGLANG_HACK_FLASHMLA_BACKEND", "unified_kv_triton"),
        Not(Given("--disable-radix-cache")),
        AnyOf(Not(Is("--disaggregation-mode", "decode")), Given("--disaggregation-decode-enable-radix-cache")),
        Not(Given("--enable-hierarchical-cache")),
    ),
    avoid="Set --disable-radix-cache, or SGLANG_HACK_FLASHMLA_BACKEND=triton.",
)
