"""sglang.hicache-draft-kv, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

BUG = KnownBug(
    id="sglang.hicache-draft-kv",
    title="EAGLE and MTP accept few drafts behind a prefix that HiCache brought back: draft KV stays behind",
    symptom="Host memory has KV of the target alone. Draft layers attend to what other requests left in the slots.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.2,<0.5.11",),
    code=("sglang.srt.managers.cache_controller:HiCacheController.start_loading",),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Not(Is("--disaggregation-mode", "decode")),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
)
