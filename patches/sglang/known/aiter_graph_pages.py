"""sglang.aiter-graph-pages, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS

BUG = KnownBug(
    id="sglang.aiter-graph-pages",
    title="Crash, or overwritten memory, in CUDA graphs of AITER with pages of several slots",
    symptom="The server ends with an illegal memory access once the running requests hold many tokens together.",
    symptoms=(DIES, GRAPHS),
    releases=(">=0.5.10,<0.5.13",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.init_cuda_graph_state",),
    upstream=Upstream("sgl-project/sglang", pull=24587),
    harm=CRASH,
    hits=AllOf(
        Is("decode backend", "aiter"),
        AnyOf(
            AllOf(Is("sliding-window KV pool", "off"), Not(Given("$SGLANG_USE_AITER_UNIFIED_ATTN"))),
            Is("speculative decoding", "on"),
        ),
        Is("CUDA graphs", "on"),
        Given("--page-size"),
        Not(Is("--page-size", "1")),
        Unseen("whether the lengths of a batch exceed what the graphs hold"),
    ),
    avoid="Set --page-size 1.",
)
