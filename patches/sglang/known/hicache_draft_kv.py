"""sglang.hicache-draft-kv, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Since, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, SPECULATION

BUG = KnownBug(
    id="sglang.hicache-draft-kv",
    title="EAGLE and MTP accept fewer drafts behind a prefix that HiCache brought back",
    symptom="HiCache keeps no KV of the drafter. Behind such a prefix the drafter attends to KV of other requests.",
    symptoms=(SPECULATION, CACHED_PREFIX),
    releases=(">=0.5.1,<0.5.11",),
    code=(
        "sglang.srt.managers.cache_controller:HiCacheController.start_loading",
        "sglang.srt.managers.cache_controller:HiCacheController.load_thread_func_layer_by_layer",
    ),
    upstream=Upstream("sgl-project/sglang", pull=21125, issue=16964),
    harm=SLOWER,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        AnyOf(Since("0.5.10"), Is("recurrent layers", "off")),
        Is("sliding-window KV pool", "off"),
        Unseen("a prefix that comes back from host memory"),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
)
