"""sglang.unified-kv-last-page, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SHARED_BATCH

from . import wrap

_POOLS = "sglang.srt.mem_cache.deepseek_v4_memory_pool"

FIX = Fix(
    id="sglang.unified-kv-last-page",
    title="Memory fault of DeepSeek V4 on AMD GPUs when its KV pool is full (unified_kv_triton)",
    symptom="The last page that the allocator hands out lies behind the end of each layer's buffer.",
    symptoms=(DIES, SHARED_BATCH),
    cause="Page 0 is nobody's, and pages count from 1. The buffer of compressed KV has rows for as many pages, from 0 on.",
    correction="Each layer's buffer gets the rows of one page more, as in 0.5.16. Other backends' pools stay as they are.",
    upstream=Upstream("sgl-project/sglang", pull=27380),  # which brought the pool
    hardware="AMD GPUs (DeepSeek-V4, SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton)",
    default=True,
    default_reason="a memory fault; upstream has released the same, and only the length of a buffer changes at launch",
    targets=(Target(wrap.init, paths=(f"{_POOLS}:DeepSeekV4TokenToKVPool.__init__",)),),
    # The buffer's maker, its readers, and who hands out pages
    witnesses=(
        f"{_POOLS}:DeepSeekV4UnifiedKVPool",
        f"{_POOLS}:DeepSeekV4TokenToKVPool.get_contiguous_buf_infos",
        "sglang.srt.layers.attention.dsv4.unified_kv_kernels.env_gate:is_unified_kv_triton",
        "sglang.srt.mem_cache.allocator:PagedTokenToKVPoolAllocator.clear",
        "sglang.srt.mem_cache.allocator.paged:PagedTokenToKVPoolAllocator.clear",
    ),
    cost="At most 64 KiB of GPU memory a layer with pages of 256 tokens, and nothing in a step.",
    avoid="Set SGLANG_HACK_FLASHMLA_BACKEND=tilelang.",
    expect="On one replica, fill the KV pool with requests and cached prefixes: a server that has ended so goes on.",
    harm=CRASH,
    hits=AllOf(
        Is("GPU", AMD),
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("KV of a layer in one buffer", ON),
    ),
)
