"""vllm.dp-draft-hang, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

from . import wrap

_WORKER = "vllm.v1.worker.gpu_worker"
_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_EAGLE = "vllm.v1.spec_decode.eagle:EagleProposer"

FIX = Fix(
    id="vllm.dp-draft-hang",
    title="The server hangs with several drafts and data parallelism once a rank idles",
    symptom=(
        "With data parallel ranks and EAGLE or MTP of two drafts or more, all ranks wait for ever once one of them has no "
        "request."
    ),
    symptoms=(DIES, PARALLEL, SPECULATION),
    cause=(
        "Each pass of a drafter begins with an exchange between all data parallel ranks. A rank with requests makes as many "
        "passes in a step as there are drafts, and an idle one makes one."
    ),
    correction=(
        "In a dummy batch of data parallel ranks, the drafter makes as many passes as in a step with requests. Profiling and "
        "capture stay as they are, and so do trees of drafts that are no chains."
    ),
    upstream=Upstream("vllm-project/vllm", issue=27691, pull=26086),
    hardware="any GPU (data parallel ranks, EAGLE or MTP with several drafts)",
    harm=CRASH,
    default=True,
    default_reason="all ranks hang; upstream corrected it in 0.12.0 in the same way",
    targets=(Target(wrap.execute_dummy_batch, needed=wrap.missing_passes, paths=(f"{_WORKER}:Worker.execute_dummy_batch",)),),
    # How often ranks with requests draft, and idle ones; and the exchange of each pass
    witnesses=(
        f"{_EAGLE}.propose",
        f"{_EAGLE}.dummy_run",
        f"{_EAGLE}.__init__",
        f"{_RUNNER}._dummy_run",
        "vllm.forward_context:set_forward_context",
        "vllm.forward_context:DPMetadata",
        "vllm.config.speculative:SpeculativeConfig.use_eagle",
        "vllm.config:SpeculativeConfig.use_eagle",
    ),
    ranks_alike=True,  # how often they exchange follows from it
    remove_when="no vLLM below 0.12.0 is served with data parallel ranks and drafts",
    cost="Nothing in a step with requests. A dummy batch lasts as long as the drafts of the other ranks, which it waits for.",
    avoid="Set `num_speculative_tokens` to 1, or take release 0.12.0.",
    expect="On one replica with two ranks and two drafts, send one request: stock no answer comes, fixed it does.",
    hits=AllOf(Above("data parallel ranks", 1), Is("drafts from hidden states", ON), Is("draft tokens of a step", "several")),
)
