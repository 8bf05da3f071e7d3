"""sglang.mrope-pairs, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, IMAGES

_ROPE = "sglang.srt.layers.rotary_embedding"

BUG = KnownBug(
    id="sglang.mrope-pairs",
    title="Garbage of GLM-4.1V: rotary embedding pairs the wrong halves of each head",
    symptom="All answers are broken, with and without images. The server is healthy.",
    symptoms=(GARBAGE, IMAGES),
    releases=(">=0.5.4,<0.5.4.post2",),
    code=(f"{_ROPE}:triton_mrope", f"{_ROPE}:MRotaryEmbedding._forward_triton"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(Is("architecture", "Glm4vForConditionalGeneration"), Is("GPU", "NVIDIA")),
    avoid="Nothing within the release avoids it; take release 0.5.4.post2.",
)
