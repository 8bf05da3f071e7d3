"""sglang.pause-retract-flush, as data."""

from attnfix.compat.doctor.condition import Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="sglang.pause-retract-flush",
    title="An update of weights ends the server where generation is paused with mode retract",
    symptom="The server ends in `Cache flush failed after updating weights`; /flush_cache fails, so KV of old weights stays.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.5.10,<0.5.21",),
    code=("sglang.srt.managers.scheduler:Scheduler.flush_cache",),
    upstream=Upstream("sgl-project/sglang", pull=33784, issue=33783),
    hits=Unseen("whether weights are updated, or the cache flushed, while generation is paused with mode retract"),
    avoid="Pause with mode abort, and send the requests again.",
    harm=CRASH,
)
