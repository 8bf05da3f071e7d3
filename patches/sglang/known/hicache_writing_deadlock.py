"""sglang.hicache-writing-deadlock, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="sglang.hicache-writing-deadlock",
    title="The server hangs, and its watchdog ends it, with HiCache on several GPUs",
    symptom="After a long run one rank waits in writing_check for ranks that skipped it; the watchdog ends the server.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.5.2,<0.5.14",),
    code=(
        "sglang.srt.mem_cache.hiradix_cache:HiRadixCache.writing_check",
        "sglang.srt.mem_cache.hi_mamba_radix_cache:HiMambaRadixCache.writing_check",
        "sglang.srt.mem_cache.hi_mamba_radix_cache:HiMambaRadixCache.loading_check",
    ),
    upstream=Upstream("sgl-project/sglang", pull=26923, issue=26921),
    harm=CRASH,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Not(Is("--tp-size", "off", "1")),
        Not(Given("$SGLANG_ENABLE_UNIFIED_RADIX_TREE")),
        AnyOf(Not(Since("0.5.13")), AllOf(Is("recurrent layers", OFF), Is("sliding-window KV pool", OFF))),
        Unseen("whether host memory runs short on one rank and not on another"),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
)
