"""vllm.pp-rejected-drafts, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.pp-rejected-drafts",
    title="The server dies at the first verified draft with pipeline parallelism (async scheduling)",
    symptom=(
        "An AssertionError ends the engine: `PP+async expects sampled_token_ids to have shape [num_reqs, 1]`, but a step "
        "with drafts has more columns."
    ),
    symptoms=(DIES, SPECULATION, PARALLEL),
    releases=(">=0.16.0,<0.31.0",),
    code=(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._pp_broadcast_prev_sampled_token_ids",
        "vllm.config.vllm:VllmConfig._get_v1_model_runner_unsupported_features",
    ),
    upstream=Upstream("vllm-project/vllm", issue=49355, pull=49443),
    hits=AllOf(
        Is("model runner", "V1"),
        Above("pipeline parallel size", 1),
        Is("speculative decoding", ON),
        Is("async scheduling", ON),
    ),
    avoid="Serve without drafts, or without `--pipeline-parallel-size`.",
    harm=CRASH,
)
