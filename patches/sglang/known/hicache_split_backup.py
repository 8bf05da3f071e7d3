"""sglang.hicache-split-backup, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="sglang.hicache-split-backup",
    title="HiCache storage misses most of a prompt that a second request shares while it is copied",
    symptom="Prefixes are computed again although they were served before: the shared part was never written to storage.",
    symptoms=(SLOW,),
    releases=(">=0.5.2,<0.5.13",),
    code=("sglang.srt.mem_cache.hiradix_cache:HiRadixCache.write_backup_storage",),
    upstream=Upstream("sgl-project/sglang", pull=16946),
    harm=SLOWER,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Is("recurrent layers", "off"),
        Unseen("whether a node is split between its copy to the host and the write to storage"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.13.",
)
