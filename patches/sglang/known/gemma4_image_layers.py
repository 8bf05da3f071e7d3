"""sglang.gemma4-image-layers, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="sglang.gemma4-image-layers",
    title="Gemma 4 lets image tokens see later ones in layers that were trained causal (triton)",
    symptom="Images are read worse: full-attention layers, and all layers of E2B and E4B, get the mask of window layers.",
    symptoms=(IMAGES,),
    releases=(">=0.5.11,<=0.5.23",),
    code=("sglang.srt.models.gemma4_mm:Gemma4ForConditionalGeneration.prepare_attn_masks",),
    upstream=Upstream("sgl-project/sglang", pull=32303, issue=33033),
    hits=AllOf(
        Is("architecture", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
        Is("prefill backend", "triton"),
        Unseen("whether prompts have images"),
    ),
    avoid="On B200 and B300, for E2B and E4B, set `--attention-backend trtllm_mha`, which is causal; else nothing.",
)
