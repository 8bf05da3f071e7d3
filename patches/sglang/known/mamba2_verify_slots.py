"""sglang.mamba2-verify-slots, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="sglang.mamba2-verify-slots",
    title="Nemotron-H ends at the start with speculative decoding: a kernel does not compile",
    symptom="Triton ends in a CompilationError. The convolution of a verification gets no slots for the states of drafts.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.5.7,<0.5.8",),
    code=("sglang.srt.layers.attention.mamba.mamba:MambaMixer2.forward",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "NemotronHForCausalLM", "NemotronH_Nano_VL_V2"),
        Is("speculative decoding", "on"),
    ),
    avoid="Leave --speculative-algorithm out.",
)
