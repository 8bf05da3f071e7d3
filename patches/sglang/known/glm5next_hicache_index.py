"""sglang.glm5next-hicache-index, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.glm5next-hicache-index",
    title="Garbage from GLM-5.3-Flash behind a prefix that HiCache brought back: its index keys are lost",
    symptom="HiCache keeps KV and recurrent states, not the index keys. The indexer picks tokens by keys of other prompts.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.20,<0.5.22",),
    code=("sglang.srt.mem_cache.hybrid_cache.hybrid_pool_assembler:_MambaStrategy.build",),
    upstream=Upstream("sgl-project/sglang", issue=38031),
    hits=AllOf(
        Is("architecture", "Glm5NextForConditionalGeneration"),
        Given("--enable-hierarchical-cache"),
        Unseen("a long prefix that comes back from host memory"),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
)
