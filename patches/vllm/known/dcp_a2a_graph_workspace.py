"""vllm.dcp-a2a-graph-workspace, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, PARALLEL

BUG = KnownBug(
    id="vllm.dcp-a2a-graph-workspace",
    title="The server dies at its first requests with `--dcp-comm-backend a2a` (CUDA graphs)",
    symptom="AssertionError: the workspace is locked; or an illegal access: graphs keep the address of a buffer that grew.",
    symptoms=(DIES, GRAPHS, PARALLEL),
    releases=(">=0.21.0,<0.24.0",),
    code=("vllm.v1.attention.ops.dcp_alltoall:_dcp_a2a_send_recv_buffers",),
    upstream=Upstream("vllm-project/vllm", pull=45487),
    hits=AllOf(
        Above("decode context parallel size", 1),
        Is("--dcp-comm-backend", "a2a"),
        Not(Given("--enforce-eager")),
        AnyOf(Is("full CUDA graphs", ON), Is("model runner", "V1")),
        Unseen("a step that needs a larger workspace than any before the graphs were captured"),
    ),
    avoid="Leave `--dcp-comm-backend` at its default, `ag_rs`.",
    harm=CRASH,
)
