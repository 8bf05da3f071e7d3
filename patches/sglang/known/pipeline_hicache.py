"""sglang.pipeline-hicache, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="sglang.pipeline-hicache",
    title="Crash with HiCache and pipeline parallelism: the stages see different cached prefixes",
    symptom="The server ends in an invalid shape, because stages count completed copies at different times.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.5.1,<0.5.13",),
    code=(
        "sglang.srt.mem_cache.hiradix_cache:HiRadixCache.loading_check",
        "sglang.srt.mem_cache.hiradix_cache:HiRadixCache.writing_check",
    ),
    upstream=Upstream("sgl-project/sglang", pull=27285, issue=22607),
    harm=CRASH,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Not(Is("--pp-size", "off", "1")),
        Unseen("whether copies complete between the looks of two stages"),
    ),
    avoid="Leave --enable-hierarchical-cache out, or use --tp-size in place of --pp-size.",
)
