"""vllm.async-preemption, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SHARED_BATCH

BUG = KnownBug(
    id="vllm.async-preemption",
    title="The engine dies, or an answer repeats a token, after a preemption (pipeline parallelism)",
    symptom=(
        "A full cache ends in `assert request.num_output_placeholders >= 0`, or in a token that comes twice: late outputs "
        "change a resumed request."
    ),
    symptoms=(DIES, PARALLEL, SHARED_BATCH),
    releases=(">=0.15.0,<0.27.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._preempt_request",),
    upstream=Upstream("vllm-project/vllm", pull=48245, issue=41190),
    harm=CRASH,
    hits=AllOf(
        AnyOf(
            Above("pipeline parallel size", 2),
            AllOf(Since("0.23.0"), Is("async scheduling", ON), Is("model runner", "V2"), Above("pipeline parallel size", 1)),
        ),
        Unseen("a full KV cache, so that requests are preempted"),
    ),
    avoid="Start with `--no-async-scheduling`, and with two pipeline stages at most.",
)
