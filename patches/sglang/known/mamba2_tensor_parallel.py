"""sglang.mamba2-tensor-parallel, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.mamba2-tensor-parallel",
    title="Nemotron-H answers garbage on more than one GPU: Mamba2 layers do not add the ranks' parts",
    symptom="With tensor parallelism each answer is garbage; on one GPU answers are right.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.3.post1,<0.5.6.post2",),
    code=("sglang.srt.layers.attention.mamba.mamba:MambaMixer2.__init__",),
    upstream=Upstream("sgl-project/sglang", pull=14811),
    hits=AllOf(Is("architecture", "NemotronHForCausalLM", "NemotronH_Nano_VL_V2"), Not(Is("--tp-size", "off", "1"))),
    avoid="Leave --tp-size at 1.",
)
