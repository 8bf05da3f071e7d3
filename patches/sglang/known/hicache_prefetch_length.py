"""sglang.hicache-prefetch-length, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="sglang.hicache-prefetch-length",
    title="HiCache storage is read no more once host memory was too short for a prefetch",
    symptom="The thread that reads storage ends with an error; later prefetches end by timeout alone.",
    symptoms=(SLOW,),
    releases=(">=0.5.11,<0.5.13",),
    code=("sglang.srt.mem_cache.hiradix_cache:HiRadixCache.prefetch_from_storage",),
    upstream=Upstream("sgl-project/sglang", pull=25991),
    harm=SLOWER,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Is("recurrent layers", "off"),
        Not(Given("$SGLANG_ENABLE_UNIFIED_RADIX_TREE")),
        Unseen("a prefetch that is longer than what the host pool has left"),
    ),
    avoid="Leave --hicache-storage-backend out, or raise --hicache-size until the host pool never runs short.",
)
