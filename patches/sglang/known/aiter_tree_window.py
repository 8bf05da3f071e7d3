"""sglang.aiter-tree-window, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SPECULATION

BUG = KnownBug(
    id="sglang.aiter-tree-window",
    title="Verification on AITER forgets sliding windows and sinks",
    symptom="Speculative decoding changes the text of Gemma 2, Gemma 3, gpt-oss and other window models on AMD GPUs.",
    symptoms=(SPECULATION, LONG_PROMPT),
    releases=(">=0.5.10,<=0.5.23",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=34463),
    hits=AllOf(
        Is("verify backend", "aiter"),
        Is("speculative decoding", ON),
        Is("sliding-window layers", ON),
        AnyOf(
            Not(Since("0.5.12")),
            Is("trees of drafts", ON),
            AllOf(Is("sliding-window KV pool", OFF), Not(Given("$SGLANG_USE_AITER_UNIFIED_ATTN"))),
            Is("$SGLANG_AITER_UNIFIED_VERIFY", "0", "false", "False"),
        ),
    ),
    avoid="Set `--attention-backend triton`; for gpt-oss `--speculative-eagle-topk 1` is enough from 0.5.12 on.",
)
