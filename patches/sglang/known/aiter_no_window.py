"""sglang.aiter-no-window, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

_BACKEND = "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend"

BUG = KnownBug(
    id="sglang.aiter-no-window",
    title="Worse answers beyond the window on AMD: AITER gives window layers the whole text",
    symptom="Gemma 2 and Gemma 3 lose quality in long conversations. Up to 0.5.9, prefill does so, too.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.5.1,<0.5.20",),
    code=(f"{_BACKEND}.forward_decode",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("decode backend", "aiter"),
        Is("sliding-window layers", ON),
        Not(Is("sliding-window KV pool", ON)),
        Not(Given("$SGLANG_USE_AITER_UNIFIED_ATTN")),
        Not(Is("$SGLANG_AITER_KV_CACHE_LAYOUT", "vectorized_5d")),
    ),
    avoid="Set `--attention-backend triton`.",
)
