"""vllm.calculated-kv-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import KV_SCALES

BUG = KnownBug(
    id="vllm.calculated-kv-scales",
    title="Scales that `--calculate-kv-scales` computes are not applied",
    symptom=(
        "With an FP8 KV cache and `--calculate-kv-scales`, answers are as bad as without scales: the first batch's scales "
        "are lost."
    ),
    symptoms=(KV_SCALES,),
    releases=(">=0.10.0,<0.11.1",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner.execute_model",),
    upstream=Upstream("vllm-project/vllm", issue=27232, pull=27102),
    hits=AllOf(Is("--calculate-kv-scales", ON), Not(Is("KV cache dtype", "auto"))),
    avoid="Take a checkpoint with calibrated scales, or keep the cache in the model's dtype.",
)
