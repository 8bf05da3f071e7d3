"""sglang.hicache-hf3fs-pages, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.hicache-hf3fs-pages",
    title="Wrong answers of MLA models behind prefixes from HiCache on 3FS: other pages are stored and read",
    symptom="Storage takes the first pages of host memory, not those of the prefix, and a read overwrites them.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.1,<0.5.2",),
    code=("sglang.srt.mem_cache.memory_pool_host:MLATokenToKVPoolHost.get_buffer_with_hash",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("attention", "MLA"),
        Given("--enable-hierarchical-cache"),
        Is("--hicache-storage-backend", "hf3fs"),
        Is("--hicache-mem-layout", "page_first"),
        Unseen("a prefix that comes from storage"),
    ),
    avoid="Leave --hicache-storage-backend out.",
)
