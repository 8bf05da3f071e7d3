"""sglang.dsa-storage-index, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.dsa-storage-index",
    title="Wrong answers of DeepSeek V3.2 and GLM-5 behind a prefix from HiCache storage: index keys lack",
    symptom="Index keys are read after all KV, or not at all. A prefetch that ends before leaves stale ones under the prefix.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.13,<0.5.17",),
    code=(
        "sglang.srt.mem_cache.hiradix_cache:HiRadixCache.check_prefetch_progress",
        "sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller:HybridCacheController._page_transfer",
    ),
    upstream=Upstream("sgl-project/sglang", pull=27550, issue=30057),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Not(Given("$SGLANG_ENABLE_UNIFIED_RADIX_TREE")),
        Unseen("whether a prefetch ends before its index keys are read, or storage lacks some of them"),
    ),
    avoid="Leave --hicache-storage-backend out.",
)
