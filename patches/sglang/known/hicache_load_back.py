"""sglang.hicache-load-back, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="sglang.hicache-load-back",
    title="The scheduler dies, or a prefix is wrong, when host memory is full (HiCache with write_back)",
    symptom="The scheduler dies in load_back, or brings back pages that were overwritten, once the host pool is full.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.5.1,<0.5.15",),
    code=("sglang.srt.mem_cache.hiradix_cache:HiRadixCache.load_back",),
    upstream=Upstream("sgl-project/sglang", pull=27631),
    hits=AllOf(Given("--enable-hierarchical-cache"), Is("--hicache-write-policy", "write_back")),
    avoid="Set `--hicache-write-policy write_through`.",
    harm=CRASH,
)
