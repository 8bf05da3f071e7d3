"""sglang.retraction-leak, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.retraction-leak",
    title="A server ends, once idle, after it took a running request back for want of KV memory (overlap)",
    symptom="The KV slot of the token that was in flight is never freed, and the memory check ends the idle server.",
    symptoms=(DIES,),
    releases=(">=0.5.3.post2,<0.5.4",),
    code=("sglang.srt.managers.scheduler_output_processor_mixin:SchedulerOutputProcessorMixin.process_batch_result_decode",),
    upstream=Upstream("sgl-project/sglang", pull=11981, issue=11970),
    harm=CRASH,
    hits=AllOf(
        Is("--disable-overlap-schedule", "off"),
        Not(Is("speculative decoding", "on")),
        Unseen("whether the KV pool ever runs full"),
    ),
    avoid="Set --disable-overlap-schedule.",
)
