"""sglang.mamba2-verify-slots, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="sglang.mamba2-verify-slots",
    title="Speculative decoding of Nemotron-H turns into garbage: accepted states come from other rows",
    symptom="States of drafts are stored by cache slot, past the buffer's end too, and are read by the row in the batch.",
    symptoms=(SPECULATION, GARBAGE),
    releases=(">=0.5.7,<0.5.8",),
    code=("sglang.srt.layers.attention.mamba.mamba:MambaMixer2.forward",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "NemotronHForCausalLM", "NemotronH_Nano_VL_V2"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
    ),
    avoid="Leave --speculative-algorithm out.",
)
