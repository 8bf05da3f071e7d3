"""sglang.dsa-draft-index, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, SPECULATION

BUG = KnownBug(
    id="sglang.dsa-draft-index",
    title="DeepSeek V3.2 and GLM-5 accept fewer drafts behind a HiCache prefix: the drafter lacks index keys",
    symptom="HiCache copies the drafter's KV but not its index keys. The drafter picks tokens by keys of other prompts.",
    symptoms=(SPECULATION, CACHED_PREFIX),
    releases=(">=0.5.14,<0.5.18",),
    code=("sglang.srt.mem_cache.kv_cache_builder:maybe_register_hicache_draft",),
    upstream=Upstream("sgl-project/sglang", pull=30393, issue=28895),
    harm=SLOWER,
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Given("--enable-hierarchical-cache"),
        Is("speculative algorithm", "EAGLE"),
        Not(Is("--disaggregation-mode", "decode")),
        Unseen("a prefix of more than 2048 tokens that comes back from host memory"),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
)
