"""sglang.triton-mla-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

_BACKEND = "sglang.srt.layers.attention.triton_backend:TritonAttnBackend"

BUG = KnownBug(
    id="sglang.triton-mla-scales",
    title="Garbage from MLA checkpoints with calibrated KV scales (Triton)",
    symptom="Scores and values of cached tokens are multiplied by scales that the cache was not divided by.",
    symptoms=(KV_SCALES, GARBAGE),
    releases=(">=0.5.10,<0.5.12",),
    code=(f"{_BACKEND}.forward_extend", f"{_BACKEND}.forward_decode"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("attention", "MLA"),
        AnyOf(Is("decode backend", "triton"), AllOf(Is("prefill backend", "triton"), Is("cached prefix", ON))),
        Is("KV cache scales", "calibrated FP8", "unused"),
        Unseen("whether the scales that the checkpoint brings differ from 1"),
    ),
    avoid="Set `--attention-backend flashinfer`, whose MLA kernels take no scale.",
)
