"""vllm.aiter-prefill-heads, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.aiter-prefill-heads",
    title="Prompts are read by wrong heads on MI350 with 2, 4 or 8 heads per GPU (AITER MLA, FP8 cache)",
    symptom="Answers to fresh prompts are garbage: half of the heads or more hold the output of another head.",
    symptoms=(GARBAGE,),
    releases=(">=0.29.0,<0.33.0",),
    code=("vllm.v1.attention.backends.mla.rocm_aiter_mla:AiterMLAImpl._mla_fp8_prefill_attn",),
    upstream=Upstream("vllm-project/vllm", pull=51040),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("attention", "MLA"),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        AnyOf(Given("$VLLM_ROCM_USE_AITER"), Is("attention backend", "ROCM_AITER_MLA", "ROCM_AITER_TRITON_MLA")),
        Unseen("2, 4 or 8 query heads on an MI350 or MI355X"),
    ),
    avoid="Start with a KV cache of 16 bits: `--kv-cache-dtype bfloat16`.",
)
