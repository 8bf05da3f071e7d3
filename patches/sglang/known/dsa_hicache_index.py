"""sglang.dsa-hicache-index, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.dsa-hicache-index",
    title="Wrong answers of DeepSeek V3.2 behind a prefix that HiCache brought back: its index keys are lost",
    symptom="Once a prefix comes back from host memory, the indexer picks tokens by keys of other prompts.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.3,<0.5.9",),
    code=("sglang.srt.mem_cache.hiradix_cache:HiRadixCache.__init__",),
    upstream=Upstream("sgl-project/sglang", pull=17415, issue=17085),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Given("--enable-hierarchical-cache"),
        Unseen("a prefix of more than 2048 tokens that comes back from host memory"),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
    ran=("0.5.3", "0.5.8.post1"),
)
