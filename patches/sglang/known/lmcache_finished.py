"""sglang.lmcache-finished, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Given, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.lmcache-finished",
    title="Servers with LMCache end at the first finished request: its KV is released twice",
    symptom='The scheduler ends with "Committed KV cache already freed".',
    symptoms=(DIES,),
    releases=(">=0.5.5.post1,<0.5.6",),
    code=("sglang.srt.mem_cache.storage.lmcache.lmc_radix_cache:LMCRadixCache.cache_finished_req",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Given("--enable-lmcache"),
        Not(Given("--enable-hierarchical-cache")),
        Not(Given("--disable-radix-cache")),
        Not(Above("speculative topk", 1)),
    ),
    avoid="Leave --enable-lmcache out.",
)
