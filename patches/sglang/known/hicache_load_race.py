"""sglang.hicache-load-race, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH

BUG = KnownBug(
    id="sglang.hicache-load-race",
    title="A prefix that HiCache loads back is overwritten by the last step of a request that has ended",
    symptom="Answers on a prefix that comes back from host memory are now and then wrong under load.",
    symptoms=(CACHED_PREFIX, SHARED_BATCH),
    releases=(">=0.5.5.post1,<0.5.19",),
    code=("sglang.srt.managers.cache_controller:HiCacheController.start_loading",),
    upstream=Upstream("sgl-project/sglang", pull=36738),
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("--disable-overlap-schedule", OFF),
        Unseen("a load into pages that a step in flight still writes"),
    ),
    avoid="Start with --disable-overlap-schedule.",
)
