"""sglang.plan-stream-verify, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_SPECULATIVE = "sglang.srt.speculative"
_WORKERS = (
    f"{_SPECULATIVE}.eagle_worker_v2:EAGLEWorkerV2",
    f"{_SPECULATIVE}.multi_layer_eagle_worker_v2:MultiLayerEagleWorkerV2",
)

FIX = Fix(
    id="sglang.plan-stream-verify",
    title="Crash or fewer accepted drafts with SGLANG_ENABLE_OVERLAP_PLAN_STREAM: no wait for the drafts",
    symptom="Under load an illegal memory access ends the server, because verification is prepared from unfinished drafts.",
    symptoms=(DIES, SPECULATION),
    cause=(
        "A second stream prepares verification: it copies draft tokens and their tree into buffers of the CUDA graph. Nothing "
        "makes it wait for the stream that computes them."
    ),
    correction="The second stream waits for the drafts. Servers without it stay as they are.",
    upstream=Upstream("sgl-project/sglang", pull=28034, issue=21942),
    hardware="any GPU (EAGLE with spec v2)",
    default=True,
    default_reason="a crash, or drafts in vain; upstream waits likewise from 0.5.20 on, and 0.5.11 to 0.5.12.post1 did",
    # Workers of one and of several draft layers: a server has one of them
    targets=tuple(Target(wrap.verify, needed=wrap.plans_apart, paths=(f"{worker}.verify",)) for worker in _WORKERS),
    independent=True,
    # The streams' maker, and the place of the wait
    witnesses=(
        *(f"{worker}.{name}" for worker in _WORKERS for name in ("__init__", "forward_batch_generation")),
        f"{_SPECULATIVE}.eagle_worker_v2:_get_plan_stream",
        f"{_SPECULATIVE}.multi_layer_eagle_worker_v2:_get_plan_stream",
        f"{_SPECULATIVE}.spec_utils:get_plan_stream",
        f"{_SPECULATIVE}.eagle_worker_common:run_eagle_verify",
        f"{_SPECULATIVE}.eagle_info_v2:EagleVerifyInputV2Mixin.prepare_for_v2_verify",
    ),
    cost="One event on the GPU in each round. Plans of verification no longer run beside the drafts on the GPU.",
    avoid="Leave SGLANG_ENABLE_OVERLAP_PLAN_STREAM unset, and before 0.5.4 `--enable-beta-spec` away.",
    expect=(
        "On one replica with the variable set, `accept len` of its log lines becomes that without the variable, and a server "
        "that has ended under load goes on."
    ),
    harm=CRASH,
    hits=Is("verification planned apart", ON),
)
