"""vllm.rocm-hybrid-layout, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.rocm-hybrid-layout",
    title="Garbage with hybrid models on AMD: keys and states of different blocks lie on the same bytes",
    symptom="With ROCM_ATTN on the V2 model runner, requests of hybrid models overwrite each other's keys and states.",
    symptoms=(BACKEND, GARBAGE, SHARED_BATCH),
    releases=(">=0.27.0,<0.28.0",),
    code=("vllm.v1.worker.gpu.attn_utils:_reshape_kv_cache",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("model runner", "V2"),
        Is("recurrent layers", ON),
        Is("attention backend", "ROCM_ATTN"),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`, or set `VLLM_USE_V2_MODEL_RUNNER=0`.",
)
