"""sglang.falcon-h1-tensor-parallel, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.falcon-h1-tensor-parallel",
    title="Falcon-H1 answers garbage on more than one GPU: the sum of its Mamba2 layers counts once for each rank",
    symptom="With tensor parallelism Falcon-H1 answers garbage; on one GPU it answers well.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.6.post2,<0.5.21",),
    code=(
        "sglang.srt.layers.attention.mamba.mamba:MambaMixer2.__init__",
        "sglang.srt.models.falcon_h1:FalconH1HybridAttentionDecoderLayer.__init__",
    ),
    upstream=Upstream("sgl-project/sglang", pull=14811),
    hits=AllOf(Is("architecture", "FalconH1ForCausalLM"), Not(Is("--tp-size", "off", "1"))),
    avoid="Leave --tp-size at 1.",
)
