"""sglang.gemma3-image-causal, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="sglang.gemma3-image-causal",
    title="Gemma 3 reads images with causal attention, on most backends without a word",
    symptom="Documents are read worse than by Transformers: image tokens do not see later ones of their image.",
    symptoms=(IMAGES,),
    releases=(">=0.5.1,<=0.5.23",),
    code=("sglang.srt.models.gemma3_mm:Gemma3ForConditionalGeneration.forward",),
    upstream=Upstream("sgl-project/sglang", pull=39805, issue=10309),
    hits=AllOf(
        Is("architecture", "Gemma3ForConditionalGeneration"),
        Given("--enable-multimodal"),
        AnyOf(Not(Since("0.5.9")), Not(Is("prefill backend", "triton"))),
        Unseen("whether prompts have images"),
    ),
    avoid="From 0.5.9 on set `--attention-backend triton`, which mends most of it.",
)
