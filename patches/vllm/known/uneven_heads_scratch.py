"""vllm.uneven-heads-scratch, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.uneven-heads-scratch",
    title="Step-3.5 and Laguna decode garbage under load: some layers' heads outgrow a buffer (TRITON_ATTN)",
    symptom="Text derails, or an illegal memory access ends the server, from some number of requests on.",
    symptoms=(SHARED_BATCH, GARBAGE, BACKEND),
    releases=(">=0.15.1,<0.22.0", ">=0.23.0,<0.25.0"),
    code=("vllm.v1.attention.backends.triton_attn:TritonAttentionMetadataBuilder.__init__",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("architecture", "LagunaForCausalLM", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"),
        Is("attention backend", "TRITON_ATTN"),
        Unseen("a decode of so many requests that their heads outgrow the buffer, and of few enough to be split"),
    ),
    avoid="Start with `--attention-backend FLASH_ATTN`, on AMD with `ROCM_ATTN`.",
)
