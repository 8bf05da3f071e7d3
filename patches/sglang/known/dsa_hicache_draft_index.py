"""sglang.dsa-hicache-draft-index, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

BUG = KnownBug(
    id="sglang.dsa-hicache-draft-index",
    title="DeepSeek V3.2 and GLM-5 accept few drafts behind a prefix that HiCache brought back",
    symptom="KV of the draft layer comes back without its index keys. The layer chooses keys by what other requests left.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.11,<0.5.18",),
    code=(
        "sglang.srt.managers.scheduler:Scheduler._maybe_register_hicache_draft",
        "sglang.srt.mem_cache.kv_cache_builder:maybe_register_hicache_draft",
    ),
    upstream=Upstream("sgl-project/sglang", pull=28896, issue=32176),
    harm=SLOWER,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("attention", "sparse MLA"),
        Is("speculative algorithm", "EAGLE"),
        Not(Is("--disaggregation-mode", "decode")),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
)
