"""sglang.mamba2-verify-slots, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="sglang.mamba2-verify-slots",
    title="Speculative decoding of Mamba2 models turns into garbage: accepted states come from other rows",
    symptom="States of drafts are stored by cache slot, past the buffer's end too, and are read by the row in the batch.",
    symptoms=(SPECULATION, GARBAGE),
    releases=(">=0.5.7,<0.5.8",),
    code=("sglang.srt.layers.attention.mamba.mamba:MambaMixer2.forward",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("Mamba2 layers", ON),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.8.",
)
