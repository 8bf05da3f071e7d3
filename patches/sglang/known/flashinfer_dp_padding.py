"""sglang.flashinfer-dp-padding, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

_LAYERS = "sglang.srt.layers"

BUG = KnownBug(
    id="sglang.flashinfer-dp-padding",
    title="Crash or NaN in prefill with DP attention over several tensor-parallel ranks (FlashInfer, AITER)",
    symptom=(
        "Rows of padding of a prefill keep what their memory held. Experts are chosen by it, and an index runs out of bounds "
        "now and then."
    ),
    symptoms=(DIES, PARALLEL),
    releases=(">=0.5.1,<0.5.22",),
    code=(
        f"{_LAYERS}.radix_attention:RadixAttention.forward",
        f"{_LAYERS}.attention.flashinfer_backend:FlashInferAttnBackend.forward_extend",
        f"{_LAYERS}.attention.flashinfer_mla_backend:FlashInferMLAAttnBackend.forward_extend",
        f"{_LAYERS}.attention.aiter_backend:AiterAttnBackend.forward_extend",
    ),
    upstream=Upstream("sgl-project/sglang", pull=28487, issue=18666),
    hits=AllOf(Is("prefill backend", "flashinfer", "flashmla", "aiter"), Is("padded prefills", ON)),
    avoid="From 0.5.3 on set `--dp-size` to the value of `--tp-size`.",
    harm=CRASH,
)
