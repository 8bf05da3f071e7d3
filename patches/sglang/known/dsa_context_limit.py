"""sglang.dsa-context-limit, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, SPECULATION

_ROOM = "sglang.srt.layers.attention"

BUG = KnownBug(
    id="sglang.dsa-context-limit",
    title="Crash near the context length with MTP (DeepSeek V3.2, GLM-5): a page table is too narrow",
    symptom='One long request ends the server: "The size of tensor a must match the size of tensor b" in verification.',
    symptoms=(DIES, CONTEXT_LIMIT, SPECULATION),
    releases=(">=0.5.4,<0.5.15",),
    code=(
        f"{_ROOM}.nsa_backend:NativeSparseAttnBackend.init_cuda_graph_state",
        f"{_ROOM}.dsa_backend:DeepseekSparseAttnBackend",
    ),
    upstream=Upstream("sgl-project/sglang", pull=29379, issue=30570),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Is("CUDA graphs", ON),
        AnyOf(
            AllOf(Is("speculative decoding", ON), Above("speculative steps", 3), Not(Since("0.5.10"))),
            AllOf(Is("spec v2", ON), Above("speculative steps", 3)),
            AllOf(Is("spec v2", ON), Above("speculative steps", 1), Not(Since("0.5.10"))),
        ),
        Unseen("a request that reaches the context length"),
    ),
    avoid="Set `--context-length` a few tokens above what clients may use, and limit their `max_tokens`.",
    harm=CRASH,
)
