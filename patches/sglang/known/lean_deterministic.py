"""sglang.lean-deterministic, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SHARED_BATCH

BUG = KnownBug(
    id="sglang.lean-deterministic",
    title="Deterministic inference on AMD GPUs is not: Triton's lean decode splits requests by their batch",
    symptom="The same prompt gets another answer in another batch, in spite of --enable-deterministic-inference.",
    symptoms=(SHARED_BATCH,),
    releases=(">=0.5.19,<0.5.21",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.forward_decode",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("GPU", AMD),
        Is("deterministic inference", ON),
        Is("decode backend", "triton"),
        Not(Given("$SGLANG_DISABLE_LEAN_ATTENTION")),
        Unseen("whether heads have up to 128 channels or MLA, without sinks or a logit cap, and batches reach 8 or 16"),
    ),
    avoid="Set SGLANG_DISABLE_LEAN_ATTENTION=1.",
)
