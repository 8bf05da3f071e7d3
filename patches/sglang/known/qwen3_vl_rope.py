"""sglang.qwen3-vl-rope, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

_ROPE = "sglang.srt.layers.rotary_embedding"

BUG = KnownBug(
    id="sglang.qwen3-vl-rope",
    title="Qwen3-VL misplaces what it sees in images: rotary embedding mixes up time, height and width",
    symptom="Answers about places, sizes and small details of an image are wrong. Answers to text alone are right.",
    symptoms=(IMAGES,),
    releases=(">=0.5.3,<0.5.3.post2",),
    code=(f"{_ROPE}:MRotaryEmbedding.forward", f"{_ROPE}:get_rope"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
        Unseen("whether prompts have images"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.3.post2.",
)
