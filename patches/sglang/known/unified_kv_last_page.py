"""sglang.unified-kv-last-page, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

BUG = KnownBug(
    id="sglang.unified-kv-last-page",
    title="Memory fault of DeepSeek V4 on AMD GPUs when its KV pool is full (unified_kv_triton)",
    symptom="The last page that the allocator hands out lies behind the end of each layer's buffer.",
    symptoms=(DIES, SHARED_BATCH),
    releases=(">=0.5.14,<0.5.16",),
    code=("sglang.srt.mem_cache.deepseek_v4_memory_pool:DeepSeekV4UnifiedKVPool.__init__",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("GPU", AMD),
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("$SGLANG_HACK_FLASHMLA_BACKEND", "unified_kv_triton"),
        Not(Given("--enable-hierarchical-cache")),
        Unseen("whether requests and cached prefixes fill the pool"),
    ),
    avoid="Set SGLANG_HACK_FLASHMLA_BACKEND=tilelang.",
    harm=CRASH,
)
