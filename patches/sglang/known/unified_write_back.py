"""sglang.unified-write-back, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="sglang.unified-write-back",
    title="Crash, or wrong answers behind cached prefixes, with write_back HiCache on the unified radix tree",
    symptom="Eviction gives pages away before their copy is complete, or without a copy, and then fails an assertion.",
    symptoms=(CACHED_PREFIX, DIES),
    releases=(">=0.5.12,<0.5.13",),
    code=(
        "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache._evict_device_leaf",
        "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache.evict",
    ),
    upstream=Upstream("sgl-project/sglang", pull=27108),
    harm=CRASH,
    hits=AllOf(
        Given("$SGLANG_ENABLE_UNIFIED_RADIX_TREE"),
        Given("--enable-hierarchical-cache"),
        Is("--hicache-write-policy", "write_back"),
        Unseen("whether the host pool is full, or a page is reused while its copy runs"),
    ),
    avoid="Set --hicache-write-policy write_through.",
)
