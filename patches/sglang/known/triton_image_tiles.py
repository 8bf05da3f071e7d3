"""sglang.triton-image-tiles, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="sglang.triton-image-tiles",
    title="Gemma 3 and 4 misread images on triton: image tokens see the rest of their image in part only",
    symptom="Documents and small print are read worse than by Transformers; keys stop at the end of a tile of queries.",
    symptoms=(IMAGES,),
    releases=(">=0.5.9,<=0.5.23",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=39703),
    hits=AllOf(
        Is("prefill backend", "triton"),
        AnyOf(
            Is("architecture", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
            AllOf(Is("architecture", "Gemma3ForConditionalGeneration"), Given("--enable-multimodal")),
        ),
        Unseen("whether prompts have images"),
    ),
    avoid="Nothing within the release for Gemma 3; for Gemma 4 from 0.5.22 on set `--attention-backend fa4`.",
)
