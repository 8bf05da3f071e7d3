"""sglang.hicache-eagle-prefetch, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

BUG = KnownBug(
    id="sglang.hicache-eagle-prefetch",
    title="Prefixes are computed again with EAGLE and MTP: HiCache finds none of them in storage",
    symptom="Pages are written under hashes of pairs of tokens, and looked up by hashes of single tokens.",
    symptoms=(SLOW, SPECULATION),
    releases=(">=0.5.4.post1,<0.5.10",),
    code=("sglang.srt.mem_cache.hiradix_cache:HiRadixCache.prefetch_from_storage",),
    upstream=Upstream("sgl-project/sglang", pull=19570),
    harm=SLOWER,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Is("recurrent layers", "off"),
        Is("sliding-window KV pool", "off"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.10.",
)
