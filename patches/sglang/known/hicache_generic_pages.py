"""sglang.hicache-generic-pages, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.hicache-generic-pages",
    title="Wrong answers behind a prefix from a HiCache storage: all pages of a batch get the last one's KV",
    symptom="Pages of a batch are read into one buffer. Up to eight pages, or 128 with 3FS, come back the same.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.1.post3,<0.5.2",),
    code=("sglang.srt.managers.cache_controller:HiCacheController._generic_page_get",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Not(Is("--hicache-storage-backend", "mooncake")),
        Not(AllOf(Is("--hicache-storage-backend", "hf3fs"), Is("--hicache-mem-layout", "page_first"))),
        Unseen("a prefix of more than one page that comes from storage"),
    ),
    avoid="Leave --hicache-storage-backend out.",
)
