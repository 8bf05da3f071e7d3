"""sglang.unified-tree-deadlock, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="sglang.unified-tree-deadlock",
    title="The server hangs, and its watchdog ends it, with HiCache on the unified radix tree and several GPUs",
    symptom="After a long run one rank waits in writing_check for ranks that skipped it; the watchdog ends the server.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.5.12,<0.5.13",),
    code=(
        "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache.writing_check",
        "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache.loading_check",
    ),
    upstream=Upstream("sgl-project/sglang", pull=27489),
    harm=CRASH,
    hits=AllOf(
        Given("$SGLANG_ENABLE_UNIFIED_RADIX_TREE"),
        Given("--enable-hierarchical-cache"),
        Not(Is("--tp-size", "off", "1")),
        Unseen("whether host memory runs short on one rank and not on another"),
    ),
    avoid="Leave --enable-hierarchical-cache out, or SGLANG_ENABLE_UNIFIED_RADIX_TREE where the model does not need it.",
)
