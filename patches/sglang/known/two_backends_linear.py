"""sglang.two-backends-linear, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

_NAMES = "flashinfer", "triton", "fa3", "fa4", "trtllm_mha", "aiter", "trtllm_mla", "cutlass_mla", "flashmla"
_MODELS = (
    "Qwen3NextForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "KimiLinearForCausalLM",
)

BUG = KnownBug(
    id="sglang.two-backends-linear",
    title="Qwen3-Next, Qwen3.5 and Kimi Linear do not start with two attention backends",
    symptom="The server ends in a TypeError: linear layers call the hybrid backend without q, k and v.",
    symptoms=(DIES,),
    releases=(">=0.5.9,<0.5.10",),
    code=("sglang.srt.layers.attention.hybrid_attn_backend:HybridAttnBackend",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", *_MODELS),
        AnyOf(*(AllOf(Is("prefill backend", name), Not(Is("decode backend", name))) for name in _NAMES)),
    ),
    avoid="Name one backend with `--attention-backend`, and none for prefill or decode alone.",
    harm=CRASH,
)
