"""sglang.flashinfer-many-heads, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, DIES, PARALLEL

BUG = KnownBug(
    id="sglang.flashinfer-many-heads",
    title="Crash on a prefix hit on FlashInfer when data-parallel attention gives a rank too many heads",
    symptom="The merge of cached and new parts is refused with 'invalid configuration argument'.",
    symptoms=(BACKEND, DIES, PARALLEL),
    releases=(">=0.5.1,<0.5.13",),
    code=("sglang.srt.layers.attention.flashinfer_backend:FlashInferAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=23993),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MHA"),
        Is("prefill backend", "flashinfer"),
        AnyOf(Given("--enable-dp-attention"), Is("--tp-size", "off", "1")),
        Unseen("whether a rank holds more than 64 query heads of width 128, or more than 32 of width 256"),
    ),
    avoid="Set --attention-backend triton.",
)
