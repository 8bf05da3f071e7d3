"""sglang.gemma3-image-mask, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, IMAGES

BUG = KnownBug(
    id="sglang.gemma3-image-mask",
    title="Gemma 3 misreads images on all backends but Triton: image tokens do not see later ones",
    symptom="The model was trained with images whose tokens see each other. Answers about documents lose most.",
    symptoms=(IMAGES, BACKEND),
    releases=(">=0.5.1,<=0.5.23",),
    code=("sglang.srt.models.gemma3_mm:Gemma3ForConditionalGeneration.prepare_attn_masks",),
    upstream=Upstream("sgl-project/sglang", pull=39805),
    hits=AllOf(
        Is("architecture", "Gemma3ForConditionalGeneration"),
        AnyOf(Not(Is("prefill backend", "triton")), Not(Since("0.5.9"))),
        AnyOf(Not(Is("prefill backend", "intel_xpu")), Not(Since("0.5.23"))),
        Unseen("whether prompts hold images"),
    ),
    avoid="From 0.5.9 on: `--attention-backend triton --chunked-prefill-size -1`, where all prompts hold images.",
)
