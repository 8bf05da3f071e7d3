"""vllm.priority-preemption, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.priority-preemption",
    title="The server dies when a scheduled request is preempted in the same step (priority scheduling)",
    symptom=(
        "An assertion or a block table that overflows ends the engine: a preempted request stays in the step and keeps its "
        "blocks."
    ),
    symptoms=(DIES, SHARED_BATCH),
    releases=(">=0.10.0,<0.11.1",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=26661, issue=23316),
    hits=AllOf(
        Is("engine core", "V1"),
        Is("--scheduling-policy", "priority"),
        Unseen("a full KV cache, so that requests are preempted"),
    ),
    avoid="Start without --scheduling-policy priority.",
    harm=CRASH,
)
