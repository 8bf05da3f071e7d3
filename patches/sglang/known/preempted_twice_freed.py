"""sglang.preempted-twice-freed, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

BUG = KnownBug(
    id="sglang.preempted-twice-freed",
    title="Priority scheduling frees the KV of a finished request twice, and the server ends",
    symptom="The server ends with 'Committed KV cache already freed', or two requests share slots, after a preemption.",
    symptoms=(DIES, SHARED_BATCH),
    releases=(">=0.5.3,<0.5.9",),
    code=("sglang.srt.managers.schedule_policy:PrefillAdder.preempt_to_schedule",),
    upstream=Upstream("sgl-project/sglang", pull=18694, issue=17797),
    harm=CRASH,
    hits=AllOf(
        Given("--enable-priority-scheduling"),
        Unseen("requests whose priorities differ by more than --priority-scheduling-preemption-threshold"),
    ),
    avoid="Set --priority-scheduling-preemption-threshold above every difference of priorities, so that nothing is preempted.",
)
