"""sglang.preempted-twice-freed, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SHARED_BATCH

from . import wrap

_MANAGERS = "sglang.srt.managers"

FIX = Fix(
    id="sglang.preempted-twice-freed",
    title="Priority scheduling frees the KV of a finished request twice, and the server ends",
    symptom="The server ends with 'Committed KV cache already freed', or two requests share slots, after a preemption.",
    symptoms=(DIES, SHARED_BATCH),
    cause=(
        "A request that has ended stays in the running batch until the next decode step. A request of a higher priority may "
        "preempt it there: its slots are freed once more, and it is queued again."
    ),
    correction="Requests that have ended are passed over. Which of the others is preempted is decided as before.",
    upstream=Upstream("sgl-project/sglang", pull=18694, issue=17797),
    hardware="any GPU",
    targets=(
        Target(
            wrap.preempt_to_schedule,
            needed=wrap.ended,
            paths=(f"{_MANAGERS}.schedule_policy:PrefillAdder.preempt_to_schedule",),
        ),
    ),
    # The choice of whom to preempt, the slots that become free, and the end of a request
    witnesses=(
        f"{_MANAGERS}.schedule_policy:PrefillAdder.__init__",
        f"{_MANAGERS}.schedule_batch:ScheduleBatch.release_req",
        f"{_MANAGERS}.schedule_batch:Req.finished",
        f"{_MANAGERS}.schedule_batch:Req.reset_for_retract",
    ),
    default=True,
    default_reason="upstream has corrected the same",
    ranks_alike=True,  # which requests run follows from it
    harm=CRASH,
    hits=Is("priority scheduling", ON),
    cost="A look at the running requests when the batch is full and a request waits, with priority scheduling alone.",
    avoid=(
        "Name a priority in each request, and set --priority-scheduling-preemption-threshold above every difference of "
        "priorities, so that nothing is preempted."
    ),
    expect="On one replica at its limit of running requests, send requests of rising priorities: stock, the server ends.",
)
