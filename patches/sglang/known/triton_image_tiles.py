"""sglang.triton-image-tiles, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

_GEMMA4 = ("Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration")
_GEMMA3 = AllOf(Is("architecture", "Gemma3ForConditionalGeneration"), Given("--enable-multimodal"))
_WITHOUT_A_CAUSAL_MASK = AllOf(Not(Since("0.5.17")), Is("CUDA graphs", OFF), Is("--chunked-prefill-size", "-1"))

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
        Not(Is("deterministic inference", ON)),
        AnyOf(
            AllOf(Is("architecture", *_GEMMA4), AnyOf(Since("0.5.22"), Is("decode backend", "triton"))),
            AllOf(_GEMMA3, Is("decode backend", "triton"), Not(_WITHOUT_A_CAUSAL_MASK)),
        ),
        Unseen("whether prompts have images"),
    ),
    avoid="Set --enable-deterministic-inference, --disable-radix-cache and --chunked-prefill-size -1. "
    "For Gemma 4 from 0.5.22 on, `--attention-backend fa4` avoids it, too.",
)
