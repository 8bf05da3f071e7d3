"""sglang.gemma4-image-layers, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

_MODULE = "sglang.srt.models.gemma4_mm"

BUG = KnownBug(
    id="sglang.gemma4-image-layers",
    title="Gemma 4 misreads images: image tokens see later ones in full-attention layers, too",
    symptom="Window layers alone want that mask, and no layer of E2B and E4B does. Triton is the default but on B200.",
    symptoms=(IMAGES,),
    releases=(">=0.5.11,<=0.5.23",),
    code=(f"{_MODULE}:Gemma4ForConditionalGeneration.prepare_attn_masks",),
    upstream=Upstream("sgl-project/sglang", pull=32303),
    hits=AllOf(
        Is("architecture", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
        AnyOf(
            AllOf(Is("prefill backend", "triton"), AnyOf(Is("decode backend", "triton"), Since("0.5.22"))),
            AllOf(Is("prefill backend", "fa4"), Since("0.5.22")),
        ),
        Unseen("whether prompts hold images"),
    ),
    avoid="For E2B and E4B on B200, set `--attention-backend trtllm_mha`; its mask is causal.",
)
