"""vllm.v2-hybrid-stale-bits, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.v2-hybrid-stale-bits",
    title="NaN that grows with uptime: LFM2-VL on the V2 model runner",
    symptom="LFM2-VL with an FP8 KV cache on the V2 model runner answers with garbage, as blocks of states become KV.",
    symptoms=(GARBAGE,),
    releases=(">=0.21.0,<0.23.0",),
    code=(
        "vllm.v1.worker.gpu.model_runner:GPUModelRunner.update_requests",
        "vllm.v1.worker.gpu.model_runner:GPUModelRunner.execute_model",
    ),
    upstream=Upstream("vllm-project/vllm", pull=43990),
    hits=AllOf(
        Is("architecture", "Lfm2VlForConditionalGeneration"),  # no other hybrid model is let through
        Is("model runner", "V2"),
        Is("states in another format than KV", ON),
        Not(Is("--attention-backend", "TRITON_ATTN")),
        AnyOf(Is("compute capability", 90, 100, 103), Unseen("a kernel of attention that multiplies masked values by zero")),
    ),
    avoid="Leave `VLLM_USE_V2_MODEL_RUNNER` out: the V1 model runner clears such blocks.",
)
