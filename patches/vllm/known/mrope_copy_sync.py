"""vllm.mrope-copy-sync, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.mrope-copy-sync",
    title="Each step of a model with M-RoPE waits for the step before (async scheduling)",
    symptom="Throughput is lower than necessary: positions go to the GPU through pageable memory, and the copy waits.",
    symptoms=(SLOW,),
    releases=(">=0.10.0,<0.28.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._prepare_inputs",),
    upstream=Upstream("vllm-project/vllm", pull=51841),
    hits=AllOf(Is("M-RoPE", ON), Is("model runner", "V1"), Is("async scheduling", ON)),
    avoid="From 0.22.0 on, set `VLLM_USE_V2_MODEL_RUNNER=1` where that runner takes the model.",
    harm=SLOWER,
)
