"""vllm.qwen35-rocm-decode, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

BUG = KnownBug(
    id="vllm.qwen35-rocm-decode",
    title="Qwen3.5 decodes garbage on AMD with AITER: its heads are read in the order of Qwen3-Next",
    symptom="The first token is right, and text derails from the second on.",
    symptoms=(BACKEND, GARBAGE),
    releases=(">=0.21.0,<0.22.0",),
    code=("vllm.model_executor.layers.mamba.gdn_linear_attn:GatedDeltaNetAttention._forward_core_rocm",),
    upstream=Upstream("vllm-project/vllm", pull=42880),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("architecture", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
        Given("$VLLM_ROCM_USE_AITER"),
        Unseen("an AITER that has the Triton kernels of Gated DeltaNet, and a step of decodes without drafts"),
    ),
    avoid="Start with `VLLM_ROCM_USE_AITER=0`.",
)
