"""sglang.fa3-window-cascade, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="sglang.fa3-window-cascade",
    title="Wrong text of sliding-window models with draft trees: drafts miss the newest cached tokens (fa3)",
    symptom="Gemma and gpt-oss change their text with EAGLE and topk above 1. Window layers hide recent tokens from a draft.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.1,<0.5.1.post3",),
    code=("sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Above("speculative topk", 1),
        Is("verify backend", "fa3"),
        Is("sliding-window layers", ON),
    ),
    avoid="Set `--speculative-eagle-topk 1`, or `--attention-backend triton`.",
)
