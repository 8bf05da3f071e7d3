"""sglang.hicache-eagle-wait, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SPECULATION

BUG = KnownBug(
    id="sglang.hicache-eagle-wait",
    title="Now and then garbage behind a prefix that HiCache brings back, with EAGLE or MTP",
    symptom="Attention does not wait for the copy from host memory, in two of three copies, and reads KV of other requests.",
    symptoms=(CACHED_PREFIX, GARBAGE, SPECULATION),
    releases=(">=0.5.1,<0.5.2",),
    code=("sglang.srt.managers.scheduler:Scheduler.run_batch",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Unseen("a prefix that comes back from host memory"),
    ),
    avoid="Leave --enable-hierarchical-cache out.",
    ran=("0.5.1.post3",),
)
