"""vllm.dcp-a2a-triton-mla, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="vllm.dcp-a2a-triton-mla",
    title="No decode runs with `--dcp-comm-backend a2a` on TRITON_MLA: a kernel does not compile",
    symptom="Decode context parallelism ends the server at its start or first decode: 16 bits are read as 32 (`bitcast`).",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.21.0,<0.26.0",),
    code=("vllm.v1.attention.ops.dcp_alltoall:dcp_a2a_lse_reduce",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("attention backend", "TRITON_MLA"),
        Above("decode context parallel size", 1),
        Is("--dcp-comm-backend", "a2a"),
    ),
    avoid="Leave `--dcp-comm-backend` at its default, `ag_rs`.",
    harm=CRASH,
)
