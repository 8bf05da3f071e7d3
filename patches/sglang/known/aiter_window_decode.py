"""sglang.aiter-window-decode, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

BUG = KnownBug(
    id="sglang.aiter-window-decode",
    title="Worse answers beyond the window on AITER: window layers attend to the whole context",
    symptom="Gemma 2, Gemma 3 and other window models get worse on AMD GPUs once a context exceeds the window.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.5.1,<0.5.20",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_decode",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(Is("decode backend", "aiter"), AllOf(Is("prefill backend", "aiter"), Not(Since("0.5.10")))),
        Is("sliding-window layers", ON),
        Is("sliding-window KV pool", OFF),
        Not(AllOf(Since("0.5.10"), Given("$SGLANG_USE_AITER_UNIFIED_ATTN"))),
        Not(Is("$SGLANG_AITER_KV_CACHE_LAYOUT", "vectorized_5d")),
        Unseen("whether contexts exceed the window"),
    ),
    avoid="Set --attention-backend triton.",
)
