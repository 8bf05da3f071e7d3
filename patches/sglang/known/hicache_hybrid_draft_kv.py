"""sglang.hicache-hybrid-draft-kv, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Since, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, SPECULATION

BUG = KnownBug(
    id="sglang.hicache-hybrid-draft-kv",
    title="DeepSeek V3.2, GLM-5 and hybrid models accept fewer drafts behind a prefix that HiCache brought back",
    symptom="HiCache copies no KV of the drafter for these models. The drafter attends to KV of other requests there.",
    symptoms=(SPECULATION, CACHED_PREFIX),
    releases=(">=0.5.10,<0.5.14",),
    code=("sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller:HybridCacheController.start_loading",),
    upstream=Upstream("sgl-project/sglang", pull=27953),
    harm=SLOWER,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE", "DFLASH"),
        AnyOf(
            Is("recurrent layers", "on"),
            AllOf(Since("0.5.11"), Is("attention", "sparse MLA")),
            AllOf(Since("0.5.13"), Is("sliding-window KV pool", "on")),
        ),
        Unseen("a prefix that comes back from host memory"),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
)
