"""sglang.flashinfer-odd-requests, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, PARALLEL

BUG = KnownBug(
    id="sglang.flashinfer-odd-requests",
    title="The server ends at the start where attention ranks do not divide the running requests (FlashInfer)",
    symptom="The server ends while it captures graphs: 'The expanded size of the tensor must match the existing size'.",
    symptoms=(DIES, GRAPHS, PARALLEL),
    releases=(">=0.5.10,<0.5.14",),
    code=("sglang.srt.layers.attention.flashinfer_backend:FlashInferAttnBackend.__init__",),
    upstream=Upstream("sgl-project/sglang", pull=25124),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MHA"),
        Is("decode backend", "flashinfer"),
        Is("CUDA graphs", ON),
        AnyOf(*map(Given, ("--enable-dp-attention", "--moe-a2a-backend", "--moe-dense-tp-size", "--enable-two-batch-overlap"))),
        Unseen("whether graphs reach the running requests of a rank, and these are no multiple of its attention ranks"),
    ),
    avoid="Set --max-running-requests to a multiple of --tp-size, of twice that with --enable-two-batch-overlap.",
)
