"""sglang.triton-mla-splits, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS

BUG = KnownBug(
    id="sglang.triton-mla-splits",
    title="Memory fault in MLA decode graphs of Triton on MI300X and MI325X",
    symptom="The server ends with a memory access fault while it replays a graph; Kimi K2 on eight GPUs shows it.",
    symptoms=(DIES, GRAPHS),
    releases=(">=0.5.12,<0.5.13",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.__init__",),
    upstream=Upstream("sgl-project/sglang", pull=24762),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("decode backend", "triton"),
        Is("CUDA graphs", "on"),
        Is("GPU", "AMD"),
        Unseen("whether the GPU is a MI300X or MI325X, and 512 splits make a scratch of several GiB"),
    ),
    avoid="Set --cuda-graph-max-bs 128, which keeps the scratch of the splits small.",
)
