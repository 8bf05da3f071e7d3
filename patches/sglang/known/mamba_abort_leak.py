"""sglang.mamba-abort-leak, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.mamba-abort-leak",
    title="Qwen3-Next ends, once idle, after a waiting request is aborted",
    symptom="The state that a prefix hit gave to a waiting request is never freed, and the memory check ends the server.",
    symptoms=(DIES,),
    releases=(">=0.5.3.post2,<0.5.5",),
    code=("sglang.srt.managers.scheduler:Scheduler.abort_request",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        Is("--disable-radix-cache", "off"),
        Not(Is("--disaggregation-mode", "decode")),
        Unseen("whether clients give up requests that wait after a prefix hit"),
    ),
    avoid="Set --disable-radix-cache.",
)
