"""sglang.aiter-softmax-scale, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

_BACKEND = "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend"
_GRANITE = tuple(f"Granite{kind}ForCausalLM" for kind in ("", "Moe", "MoeShared", "MoeHybrid"))
_GEMMA = "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"
_UNIFIED, _LAYOUT = "$SGLANG_USE_AITER_UNIFIED_ATTN", "$SGLANG_AITER_KV_CACHE_LAYOUT"

BUG = KnownBug(
    id="sglang.aiter-softmax-scale",
    title="Wrong answers from Granite and from Gemma 27B on AMD: AITER ignores their softmax scale",
    symptom="AITER divides by the root of the head size. Granite's own factor is about ten times smaller.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.1,<=0.5.23",),
    code=(f"{_BACKEND}.forward_extend", f"{_BACKEND}.forward_decode"),
    upstream=Upstream("sgl-project/sglang", pull=38754),
    hits=AllOf(
        AnyOf(Is("prefill backend", "aiter"), Is("decode backend", "aiter")),
        AnyOf(
            Is("architecture", *_GRANITE),
            AllOf(
                Is("architecture", *_GEMMA),
                Not(Since("0.5.20")),
                Unseen("whether query_pre_attn_scalar is not the head size (27B)"),
            ),
        ),
        AnyOf(Not(Since("0.5.20")), Not(Given(_UNIFIED)), Is(_LAYOUT, "vectorized_5d")),
    ),
    avoid="Set `--attention-backend triton`.",
)
