"""sglang.dsa-hicache-prefetch, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.dsa-hicache-prefetch",
    title="Wrong answers behind a prefix that HiCache read in part from storage (DeepSeek V3.2, GLM-5)",
    symptom="A prefetch that ends early brings KV without its index keys, and the prefix is served with keys of other prompts.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.11,<0.5.16",),
    code=(
        "sglang.srt.mem_cache.hiradix_cache:HiRadixCache.check_prefetch_progress",
        "sglang.srt.mem_cache.registry:default_radix_cache_factory",
    ),
    upstream=Upstream("sgl-project/sglang", pull=30738),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Not(Given("$SGLANG_ENABLE_UNIFIED_RADIX_TREE")),
        Unseen("a prefetch that times out, fails or ends before storage gave all pages"),
    ),
    avoid="Leave --hicache-storage-backend out.",
)
