"""sglang.flashinfer-odd-capacity, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, DIES, PARALLEL

BUG = KnownBug(
    id="sglang.flashinfer-odd-capacity",
    title="Crash with DP attention once a rank is full, if its capacity is odd (FlashInfer)",
    symptom="A decode step is padded beyond the capacity of its rank, and ends in a mismatch of sizes.",
    symptoms=(DIES, PARALLEL, BACKEND),
    releases=(">=0.5.1,<0.5.20",),
    code=(
        "sglang.srt.layers.attention.flashinfer_backend:FlashInferAttnBackend.__init__",
        "sglang.srt.layers.attention.flashinfer_mla_backend:FlashInferMLAAttnBackend.__init__",
    ),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Given("--enable-dp-attention"),
        Is("decode backend", "flashinfer"),
        AnyOf(Is("attention", "MLA"), Not(Since("0.5.14"))),
        Unseen("whether the ranks of a group divide the requests that a data-parallel rank may run"),
    ),
    avoid="Choose `--max-running-requests` so that each data-parallel rank gets a multiple of --tp-size over --dp-size.",
)
