"""vllm.stale-draft-placeholders, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SHARED_BATCH, SPECULATION

from . import wrap

_SCHEDULER = "vllm.v1.core.sched.async_scheduler:AsyncScheduler"
_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"

FIX = Fix(
    id="vllm.stale-draft-placeholders",
    title="Crash under load with drafts on one GPU (Model Runner V1): a token of -1 is embedded",
    symptom=(
        "With speculative decoding and async scheduling, a server of one GPU dies under load. The device-side assert is "
        "`ind >= 0` of an embedding. It comes when more requests decode than a step has room for, or when images fill it."
    ),
    symptoms=(DIES, SPECULATION, SHARED_BATCH),
    cause=(
        "The scheduler gives each decode placeholders of -1 for its next drafts. A request that the next step leaves out keeps "
        "them. Once it comes back, the runner has no drafts to put in their place."
    ),
    correction=(
        "A request that a step leaves out gives its placeholders up, and comes back with its next token alone. No sampler sees "
        "-1. Models with recurrent states stay as they are: such a request would continue from a wrong state."
    ),
    upstream=Upstream("vllm-project/vllm", pull=47029, issue=37159),
    hardware="any GPU (speculative decoding on Model Runner V1, one GPU per replica)",
    harm=CRASH,
    default=True,
    default_reason="the engine dies; upstream corrected it in 0.25.0, in the runner and in the sampler",
    targets=(Target(wrap.update_after_schedule, needed=wrap.left_out, paths=(f"{_SCHEDULER}._update_after_schedule",)),),
    # The step that leaves requests out, the drafts that replace placeholders, and the embedding of both
    witnesses=(
        "vllm.v1.core.sched.scheduler:Scheduler.schedule",
        f"{_RUNNER}._preprocess",
        f"{_RUNNER}._update_states",
        f"{_RUNNER}._prepare_input_ids",
        "vllm.v1.worker.gpu_input_batch:InputBatch.update_req_spec_token_ids",
    ),
    remove_when="no vLLM below 0.25.0 is served with Model Runner V1 and speculative decoding",
    cost="A microsecond of host time per step with drafts; some 10 in one that leaves requests out, at 256 of them.",
    avoid="Start with `--no-async-scheduling`, or raise `--max-num-batched-tokens`.",
    expect=(
        "On one replica with three drafts and `--max-num-batched-tokens 256`, send 128 requests at a time: stock the engine "
        "dies, fixed all answers come."
    ),
    stays_out=AnyOf(Is("recurrent layers", ON), Above("pipeline parallel size", 1)),
    hits=AllOf(
        Is("model runner", "V1"),
        Is("async scheduling", ON),
        Is("speculative decoding", ON),
        Not(Above("tensor parallel size", 1)),
    ),
)
