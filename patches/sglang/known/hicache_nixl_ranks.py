"""sglang.hicache-nixl-ranks, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

_NIXL = "sglang.srt.mem_cache.storage.nixl.hicache_nixl:HiCacheNixl"

BUG = KnownBug(
    id="sglang.hicache-nixl-ranks",
    title="Garbage behind prefixes that HiCache reads from NIXL storage: all ranks share one file",
    symptom="With tensor parallelism each rank overwrites the heads of the others, and reads what the last one wrote.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.1,<0.5.3.post2",),
    code=(f"{_NIXL}.batch_get", f"{_NIXL}.batch_set"),
    upstream=Upstream("sgl-project/sglang", pull=10969),
    hits=AllOf(
        Is("attention", "MHA"),
        Given("--enable-hierarchical-cache"),
        Is("--hicache-storage-backend", "nixl"),
        Not(Is("--tp-size", "off", "1")),
        AnyOf(Is("--enable-dp-attention", "off"), Unseen("whether --tp-size is larger than --dp-size")),
    ),
    avoid="Set --hicache-storage-backend file.",
)
