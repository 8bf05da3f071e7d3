"""sglang.pd-abort-leak, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.pd-abort-leak",
    title="A decode server ends with a memory leak once a client leaves before its request runs",
    symptom="The request's KV slots are never given back. An idle server finds them missing, and ends.",
    symptoms=(DIES,),
    releases=(">=0.5.1,<0.5.2",),
    code=("sglang.srt.managers.scheduler:Scheduler.abort_request",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("--disaggregation-mode", "decode"),
        Unseen("whether requests are aborted between their transfer and their first step"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.2.",
)
