"""vllm.mrope-plain-drafter, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="vllm.mrope-plain-drafter",
    title="No server starts when a drafter without M-RoPE serves a model with it (EAGLE)",
    symptom="Positions of three dimensions reach a rotary embedding of one, and the drafter ends with an error of shapes.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.11.1,<0.15.0",),
    code=(
        "vllm.v1.spec_decode.eagle:EagleProposer._set_positions",
        "vllm.v1.spec_decode.eagle:SpecDecodeBaseProposer._set_positions",
    ),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("M-RoPE", ON),
        Is("drafts from hidden states", ON),
        Is("--speculative-config.method", "eagle", "eagle3", OFF),
        Unseen("a drafter whose config.json has no mrope_section"),
    ),
    avoid="Take a drafter whose config.json has the model's M-RoPE.",
    harm=CRASH,
)
