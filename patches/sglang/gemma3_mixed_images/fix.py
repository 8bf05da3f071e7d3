"""sglang.gemma3-mixed-images, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, IMAGES

from . import wrap

_MODEL = f"{wrap.MODEL}:Gemma3ForConditionalGeneration"

FIX = Fix(
    id="sglang.gemma3-mixed-images",
    title="The server dies when Gemma 3 gets a prompt with an image and one without together (Triton)",
    symptom="An AttributeError names `mm_items`: the mask of image tokens is built for the prompt without images, too.",
    symptoms=(DIES, IMAGES),
    cause=(
        "Image tokens see each other, by a mask that the model builds for all prompts of a prefill. A prompt without images "
        "has None where their list is read."
    ),
    correction=(
        "That prompt has an empty list while the mask is built, so that its part is causal. Other backends and other batches "
        "are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", pull=27499, issue=26503),
    hardware="any GPU (Gemma 3 with images, triton)",
    default_reason="not proven on a GPU yet; upstream closed the change without merging it",
    targets=(
        Target(
            wrap.prepare_attn_masks,
            needed=wrap.lacks_images,
            paths=(f"{_MODEL}.prepare_attn_masks",),
        ),
    ),
    # The request for a mask, and the parts of a prompt that it reads
    witnesses=(
        f"{_MODEL}.forward",
        "sglang.srt.model_executor.forward_context:get_attn_backend",
        "sglang.srt.managers.schedule_batch:MultimodalDataItem.is_image",
    ),
    cost="Some microseconds on the host for a prefill in which one prompt has an image and another has none.",
    avoid="Set another `--attention-backend`; it gives image tokens a causal mask.",
    expect="On one replica, send prompts with an image and prompts without at once: stock ends, fixed answers all of them.",
    harm=CRASH,
    hits=AllOf(
        Is("images of Gemma 3", ON),
        Is("prefill backend", "triton"),
        Is("decode backend", "triton"),
    ),
)
