"""sglang.unified-memory-deterministic, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="sglang.unified-memory-deterministic",
    title="Garbage with unified memory and deterministic inference: new tokens are read from other slots",
    symptom="Answers of hybrid models are garbage from their first token on, or once the pool has moved pages.",
    symptoms=(GARBAGE,),
    releases=(">=0.5.15,<0.5.18",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend._forward_extend_unified",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Given("--enable-unified-memory"),
        Is("deterministic inference", ON),
        Is("prefill backend", "triton"),
    ),
    avoid="Leave --enable-unified-memory out.",
)
