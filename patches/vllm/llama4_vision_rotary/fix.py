"""vllm.llama4-vision-rotary, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import IMAGES

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_LAYER = f"{_ROTARY}.llama4_vision_rope:Llama4VisionRotaryEmbedding"

FIX = Fix(
    id="vllm.llama4-vision-rotary",
    title="Images are misread by Llama 4",
    symptom="Llama 4 describes images wrongly, mostly where things lie in them. A warning names a discarded imaginary part.",
    symptoms=(IMAGES,),
    cause=(
        "The vision encoder rotates queries and keys by complex numbers. They are cast to the model's dtype, which keeps the "
        "cosines alone."
    ),
    correction="The table is moved to the GPU and keeps its dtype, as in 0.11.1.",
    upstream=Upstream("vllm-project/vllm", pull=25889, issue=25888),
    hardware="any GPU (Llama 4)",
    default=True,
    default_reason="silent wrong output; 0.11.1 leaves the table complex, too",
    targets=(Target(wrap.forward_native, needed=wrap.is_complex, paths=(f"{_LAYER}.forward_native",)),),
    # The way to it, the table, and the cast
    witnesses=(
        f"{_LAYER}.forward_cuda",
        f"{_LAYER}._compute_cos_sin_cache",
        f"{_ROTARY}.base:RotaryEmbedding._match_cos_sin_cache_dtype",
    ),
    cost="None: one cast of a table is left out.",
    avoid="Nothing within the release avoids it; take release 0.11.1.",
    expect=(
        "On one replica, descriptions of images become those of 0.11.1. Storage of KV that a server without the fix filled has "
        "images as they were misread: empty it."
    ),
    hits=Is("architecture", "Llama4ForConditionalGeneration"),
)
