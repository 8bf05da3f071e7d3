"""vllm.pp-rejected-drafts, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.pp-rejected-drafts",
    title="Speculative decoding over several pipeline stages changes the text after a rejected draft",
    symptom=(
        "With pipeline parallelism and drafts, answers diverge after the first rejected draft: earlier stages count it as "
        "accepted."
    ),
    symptoms=(SPECULATION, PARALLEL),
    releases=(">=0.19.0,<=0.33.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._prepare_inputs",),
    upstream=Upstream("vllm-project/vllm", issue=44698, pull=49443),
    hits=AllOf(
        Is("model runner", "V1"), Above("pipeline parallel size", 1), Is("speculative decoding", ON), Is("async scheduling", ON)
    ),
    avoid="Set `--no-async-scheduling`, or serve without drafts.",
)
