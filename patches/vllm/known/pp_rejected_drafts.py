"""vllm.pp-rejected-drafts, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.pp-rejected-drafts",
    title="The server dies at the first verified draft over several pipeline stages (async scheduling)",
    symptom=(
        'The engine ends with "PP+async expects sampled_token_ids to have shape [num_reqs, 1]": a verified draft makes more '
        "tokens than one."
    ),
    symptoms=(DIES, SPECULATION, PARALLEL),
    releases=(">=0.16.0,<0.33.0",),
    code=(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._pp_broadcast_prev_sampled_token_ids",
        "vllm.config.vllm:VllmConfig.__post_init__",
    ),
    upstream=Upstream("vllm-project/vllm", issue=44698, pull=49443),
    hits=AllOf(
        Is("model runner", "V1"), Above("pipeline parallel size", 1), Is("speculative decoding", ON), Is("async scheduling", ON)
    ),
    avoid="Set `--no-async-scheduling`, or serve without drafts.",
    harm=CRASH,
)
