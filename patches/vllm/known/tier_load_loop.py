"""vllm.tier-load-loop, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="vllm.tier-load-loop",
    title="A request is never answered once a file of its prefix cannot be read (offloading, second tier)",
    symptom="The lookup goes on to report a prefix that failed to load, and each step starts the load again.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.24.0,<0.28.0",),
    code=("vllm.v1.kv_offload.tiering.fs.manager:FileSystemTierManager.get_finished_jobs",),
    upstream=Upstream("vllm-project/vllm", pull=49328, issue=49176),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        Unseen("a TieringOffloadingSpec with a second tier, and a block of it that is torn or deleted"),
    ),
    avoid="Offload to the CPU alone, without a second tier.",
    harm=CRASH,
)
