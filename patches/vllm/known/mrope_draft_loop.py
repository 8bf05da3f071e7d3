"""vllm.mrope-draft-loop, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES, SPECULATION

BUG = KnownBug(
    id="vllm.mrope-draft-loop",
    title="Older drafters of models with images accept fewer drafts behind an image (M-RoPE)",
    symptom="MTP or EAGLE with two drafts or more: behind an image, acceptance falls with each step. The text stays right.",
    symptoms=(SPECULATION, IMAGES),
    releases=(">=0.11.1,<0.15.0", ">=0.16.0,<0.18.0"),
    code=("vllm.v1.spec_decode.eagle:EagleProposer.propose", "vllm.v1.spec_decode.eagle:SpecDecodeBaseProposer.propose"),
    upstream=Upstream("vllm-project/vllm", issue=54498, pull=54716),
    hits=AllOf(Is("M-RoPE", ON), Is("drafts from hidden states", ON), Is("draft tokens of a step", "several")),
    avoid="Set `num_speculative_tokens` to 1, or take 0.18.0 and vllm.mrope-draft-slots.",
    harm=SLOWER,
)
