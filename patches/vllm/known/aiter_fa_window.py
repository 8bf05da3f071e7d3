"""vllm.aiter-fa-window, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

BUG = KnownBug(
    id="vllm.aiter-fa-window",
    title="Text degrades beyond the sliding window on AMD: decode ignores the window (AITER FlashAttention)",
    symptom="A request longer than the window gets wrong text: each decode step reads the whole context, freed blocks too.",
    symptoms=(BACKEND, LONG_PROMPT),
    releases=(">=0.10.0,<0.12.0",),
    code=("vllm.v1.attention.backends.rocm_aiter_fa:AiterFlashAttentionImpl.forward",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("attention", "MHA"),
        Is("engine core", "V1"),
        Is("sliding-window layers", ON),
        Is("attention sinks", OFF),
        AnyOf(
            AllOf(Since("0.11.1"), Is("attention backend", "ROCM_AITER_FA")),
            AllOf(Given("$VLLM_ROCM_USE_AITER"), Not(Is("$VLLM_ROCM_USE_AITER_MHA", "0", "false", "False"))),
        ),
        Unseen("a gfx9 GPU, and requests longer than the window"),
    ),
    avoid="Set `VLLM_ROCM_USE_AITER_MHA=0`, and do not ask for ROCM_AITER_FA: Triton's kernels know windows.",
)
