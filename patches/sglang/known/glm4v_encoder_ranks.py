"""sglang.glm4v-encoder-ranks, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES, PARALLEL

_MODEL = "sglang.srt.models.glm4v"

BUG = KnownBug(
    id="sglang.glm4v-encoder-ranks",
    title="Images of GLM-4.5V with data-parallel attention: the encoder adds up parts of other ranks' images",
    symptom="Requests with images hang the server, or their answers are about a mixture of images.",
    symptoms=(IMAGES, PARALLEL, DIES),
    releases=(">=0.5.9,<0.5.22",),
    code=(f"{_MODEL}:Glm4vVisionMLP.__init__", f"{_MODEL}:Glm4vPatchMerger.__init__"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "Glm4vMoeForConditionalGeneration"),
        Given("--enable-dp-attention"),
        Not(Is("--dp-size", "off", "1")),
    ),
    avoid="Leave `--enable-dp-attention` out.",
)
