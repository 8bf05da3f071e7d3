"""sglang.aiter-tree-window, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SPECULATION

BUG = KnownBug(
    id="sglang.aiter-tree-window",
    title="Verification on AITER forgets windows and sinks of trees of drafts, below 0.5.12 of all drafts",
    symptom="Speculative decoding changes the text of gpt-oss and other window models on AMD GPUs.",
    symptoms=(SPECULATION, LONG_PROMPT),
    releases=(">=0.5.10,<=0.5.23",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=34463),
    hits=AllOf(
        Is("verify backend", "aiter"),
        Is("sliding-window layers", ON),
        AnyOf(Not(Since("0.5.12")), Above("speculative topk", 1)),
    ),
    avoid="Set `--speculative-eagle-topk 1` from 0.5.12 on, or `--attention-backend triton`.",
)
