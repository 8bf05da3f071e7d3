"""vllm.dcp-sparse-workspace, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, LONG_PROMPT, PARALLEL

BUG = KnownBug(
    id="vllm.dcp-sparse-workspace",
    title="A long prompt ends the server under decode context parallelism (FLASHINFER_MLA_SPARSE)",
    symptom="FlashInfer reports a buffer overflow when it allocates its softmax workspace, and the server ends.",
    symptoms=(DIES, PARALLEL, LONG_PROMPT),
    releases=(">=0.25.0,<0.30.0",),
    code=("vllm.v1.attention.backends.mla.flashinfer_mla_sparse:_get_workspace_buffer",),
    upstream=Upstream("vllm-project/vllm", issue=50781),
    hits=AllOf(
        Is("attention backend", "FLASHINFER_MLA_SPARSE"),
        Above("decode context parallel size", 1),
        Not(Given("$VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE")),
        Unseen("a step whose tokens times the gathered query heads exceed 201,000"),
    ),
    avoid=(
        "Set `VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE` to 394 MiB plus 2 KiB for each gathered query head and token of "
        "`--max-num-batched-tokens`."
    ),
    harm=CRASH,
)
