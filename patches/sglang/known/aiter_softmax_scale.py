"""sglang.aiter-softmax-scale, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.doctor.sglang import GEMMA
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

_PHI, _LARGE = "Phi3SmallForCausalLM", (*GEMMA, "Gemma2ForSequenceClassification")

BUG = KnownBug(
    id="sglang.aiter-softmax-scale",
    title="Garbage from Granite models on AITER: attention is scaled by the head size alone",
    symptom="Granite and Gemma 3n answer with garbage on AMD GPUs, where AITER is the default; Gemma 2 and 3 27B get worse.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.1,<=0.5.23",),
    code=(
        "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_extend",
        "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_decode",
    ),
    upstream=Upstream("sgl-project/sglang", pull=38754),
    hits=AllOf(
        AnyOf(Is("prefill backend", "aiter"), Is("decode backend", "aiter")),
        Not(AllOf(Since("0.5.20"), Given("$SGLANG_USE_AITER_UNIFIED_ATTN"))),
        AnyOf(
            Is("architecture", *(f"Granite{kind}ForCausalLM" for kind in ("", "Moe", "MoeHybrid", "MoeShared")), _PHI),
            AllOf(
                AnyOf(Not(Since("0.5.20")), Not(Is("decode backend", "aiter"))),  # a later decode refuses window layers
                Is("architecture", "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration", *_LARGE),
                AnyOf(Not(Is("architecture", *_LARGE)), Unseen("whether it is a model of 27B, with a scale of its own")),
            ),
        ),
    ),
    avoid="Set --attention-backend triton.",
)
