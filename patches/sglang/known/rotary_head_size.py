"""sglang.rotary-head-size, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.rotary-head-size",
    title="Models with an unusual head size do not start without vLLM: rotary embedding imports its kernel",
    symptom="The server ends with 'No module named vllm' while it builds the model.",
    symptoms=(DIES,),
    releases=(">=0.5.1,<0.5.6.post1",),
    code=("sglang.srt.layers.rotary_embedding:RotaryEmbedding.__init__",),
    upstream=Upstream("sgl-project/sglang", pull=14334, issue=14314),
    harm=CRASH,
    hits=AllOf(
        Not(Is("head size", 64, 128, 256, 512)),
        Is("GPU", "NVIDIA"),
        Unseen("whether vLLM is not installed"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.6.post1.",
)
