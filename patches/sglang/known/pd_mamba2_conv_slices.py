"""sglang.pd-mamba2-conv-slices, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

_MORE = (
    "NemotronH_Nano_VL_V2",
    "NemotronH_Nano_Omni_Reasoning_V3",
    "NemotronH_Omni_Reasoning_V3",
    "Mamba2ForCausalLM",
    "GigaChat35ForCausalLM",
)

BUG = KnownBug(
    id="sglang.pd-mamba2-conv-slices",
    title="Garbage of Mamba2 hybrids with P/D between unequal TP sizes: convolution channels are mixed up",
    symptom="Convolution states hold x, B and C, each cut by rank. The transfer cuts them as one.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.9,<=0.5.23",),
    code=("sglang.srt.configs.mamba_utils:Mamba2StateShape.create",),
    upstream=Upstream("sgl-project/sglang", issue=23746),
    hits=AllOf(
        AnyOf(Is("Mamba2 layers", ON), Is("architecture", *_MORE)),
        Is("--disaggregation-mode", "prefill", "decode"),
        Not(Given("--enable-unified-memory")),
        Not(AllOf(Not(Since("0.5.11")), Is("--disaggregation-transfer-backend", "nixl", "mori"))),
        Unseen("whether the attention TP sizes of the two servers differ"),
    ),
    avoid="Give both servers the same attention TP size.",
)
