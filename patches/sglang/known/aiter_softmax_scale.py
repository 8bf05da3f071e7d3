"""sglang.aiter-softmax-scale, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

BUG = KnownBug(
    id="sglang.aiter-softmax-scale",
    title="Garbage from Granite models on AITER: attention is scaled by the head size alone",
    symptom="Granite and Gemma 3n answer with garbage on AMD GPUs, where AITER is the default backend.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.1,<=0.5.23",),
    code=(
        "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_extend",
        "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_decode",
    ),
    upstream=Upstream("sgl-project/sglang", pull=38754),
    hits=AllOf(
        AnyOf(Is("prefill backend", "aiter"), Is("decode backend", "aiter")),
        Is(
            "architecture",
            *("GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeHybridForCausalLM"),
            *("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
        ),
    ),
    avoid="Set --attention-backend triton.",
)
