"""sglang.hicache-wait-complete, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="sglang.hicache-wait-complete",
    title="Prefixes are computed again: HiCache does not wait for storage with wait_complete or timeout",
    symptom="A prompt is prefilled although storage has it. The prefetch ends before storage was asked for a page.",
    symptoms=(SLOW,),
    releases=(">=0.5.1,<0.5.1.post3",),
    code=("sglang.srt.mem_cache.hiradix_cache:HiRadixCache.can_terminate_prefetch",),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Is("--hicache-storage-prefetch-policy", "wait_complete", "timeout"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.1.post3.",
)
