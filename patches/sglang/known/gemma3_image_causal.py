"""sglang.gemma3-image-causal, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Since, Unseen
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
        Not(AllOf(Since("0.5.9"), Is("prefill backend", "triton"), Is("decode backend", "triton"))),
        Not(AllOf(Since("0.5.23"), Is("prefill backend", "intel_xpu"), Is("decode backend", "intel_xpu"))),
        Unseen("whether prompts have images"),
    ),
    avoid="From 0.5.9 on set `--attention-backend triton` for both phases, which mends most of it.",
)
