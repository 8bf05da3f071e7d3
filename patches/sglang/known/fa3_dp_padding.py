"""sglang.fa3-dp-padding, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="sglang.fa3-dp-padding",
    title="Crash or NaN in prefill with DP attention over several tensor-parallel ranks (fa3)",
    symptom="A prefill ends in an index out of bounds, or in NaN. Rows of padding hold what was in memory.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.5.1,<0.5.22",),
    code=("sglang.srt.layers.radix_attention:RadixAttention.forward",),
    upstream=Upstream("sgl-project/sglang", pull=28487, issue=18666),
    hits=AllOf(
        Is("prefill backend", "fa3"),
        Given("--enable-dp-attention"),
        Unseen("prompts whose tokens the tensor-parallel ranks of a group do not divide"),
    ),
    avoid="Set `--dp-size` to the value of `--tp-size`, or `--prefill-attention-backend flashinfer`.",
    harm=CRASH,
)
