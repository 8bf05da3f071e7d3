"""vllm.mrope-draft-slots, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES, SPECULATION

#: DFlash's drafts are made in one pass
_DRAFTER = AllOf(
    Is("drafts from hidden states", ON),
    Not(Is("--speculative-config.method", "dflash", "dspark")),
    AnyOf(Not(Is("--speculative-config.method", "eagle", "eagle3")), Unseen("an mrope_section in the drafter's config.json")),
)

BUG = KnownBug(
    id="vllm.mrope-draft-slots",
    title="Drafters of models with images accept fewer drafts behind an image (M-RoPE)",
    symptom=(
        "MTP or EAGLE with two drafts or more: behind an image, acceptance falls with each draft step. The text stays right."
    ),
    symptoms=(SPECULATION, IMAGES),
    releases=(">=0.11.1,<=0.33.0",),
    code=(
        "vllm.v1.spec_decode.eagle:EagleProposer.propose",
        "vllm.v1.spec_decode.eagle:SpecDecodeBaseProposer.propose",
        "vllm.v1.spec_decode.llm_base_proposer:SpecDecodeBaseProposer._update_positions_dependent_metadata",
    ),
    upstream=Upstream("vllm-project/vllm", issue=54498, pull=54716),
    hits=AllOf(Is("M-RoPE", ON), Is("model runner", "V1"), Is("draft tokens of a step", "several"), _DRAFTER),
    avoid=(
        "Set `num_speculative_tokens` to 1: the first draft's slot is right. On 0.29.0 and newer the default model runner "
        "V2 is right."
    ),
    harm=SLOWER,
)
