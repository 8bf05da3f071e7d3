"""vllm.qwen3-omni-video, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="vllm.qwen3-omni-video",
    title="Qwen3-Omni misplaces what it sees in a video: frames lie half as far apart",
    symptom="Answers about videos are worse than those of Transformers: positions advance 13 each step instead of 26.",
    symptoms=(IMAGES,),
    releases=(">=0.11.1,<0.12.0",),
    code=(
        "vllm.model_executor.models.qwen3_omni_moe_thinker:Qwen3OmniMoeThinkerForConditionalGeneration.get_mrope_input_positions",
    ),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("architecture", "Qwen3OmniMoeForConditionalGeneration"), Unseen("requests with videos")),
    avoid="Nothing within the release avoids it; take release 0.12.0.",
)
