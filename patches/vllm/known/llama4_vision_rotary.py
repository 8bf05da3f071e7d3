"""vllm.llama4-vision-rotary, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="vllm.llama4-vision-rotary",
    title="Images are misread by Llama 4",
    symptom="Descriptions of images are wrong: a cast drops the imaginary part of the vision encoder's rotary cache.",
    symptoms=(IMAGES,),
    releases=(">=0.11.0,<0.11.1",),
    code=("vllm.model_executor.layers.rotary_embedding.llama4_vision_rope:Llama4VisionRotaryEmbedding.forward_native",),
    upstream=Upstream("vllm-project/vllm", pull=25889, issue=25888),
    hits=AllOf(Is("architecture", "Llama4ForConditionalGeneration"), Unseen("requests with images")),
    avoid="Nothing within the release avoids it; take release 0.11.1.",
)
