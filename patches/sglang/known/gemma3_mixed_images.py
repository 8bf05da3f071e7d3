"""sglang.gemma3-mixed-images, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES

BUG = KnownBug(
    id="sglang.gemma3-mixed-images",
    title="The server dies when Gemma 3 gets a prompt with an image and one without together (Triton)",
    symptom="An AttributeError names `mm_items`: the mask of image tokens is built for the prompt without images, too.",
    symptoms=(DIES, IMAGES),
    releases=(">=0.5.9,<=0.5.23",),
    code=("sglang.srt.models.gemma3_mm:Gemma3ForConditionalGeneration.prepare_attn_masks",),
    upstream=Upstream("sgl-project/sglang", pull=27499, issue=26503),
    hits=AllOf(
        Is("architecture", "Gemma3ForConditionalGeneration"),
        Given("--enable-multimodal"),
        Is("prefill backend", "triton"),
        Is("decode backend", "triton"),
        Unseen("whether one prefill holds prompts with and without images"),
    ),
    avoid="Set another `--attention-backend`; it gives image tokens a causal mask.",
    harm=CRASH,
)
