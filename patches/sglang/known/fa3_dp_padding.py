"""sglang.fa3-dp-padding, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
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
        AnyOf(Given("--enable-dp-attention"), Given("--moe-a2a-backend"), Is("--moe-dense-tp-size", "1")),
        Unseen("prompts whose tokens the tensor-parallel ranks of a group do not divide"),
    ),
    avoid="Set `--prefill-attention-backend flashinfer`, or from 0.5.3 on `--dp-size` to the value of `--tp-size`.",
    harm=CRASH,
)
