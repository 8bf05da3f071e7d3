"""vllm.sparse-indexer-memory, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES

BUG = KnownBug(
    id="vllm.sparse-indexer-memory",
    title="Out of memory on a long prompt (sparse MLA)",
    symptom="The server dies of CUDA memory on long prompts, because the logits of the sparse indexer have no bound.",
    symptoms=(DIES, CONTEXT_LIMIT),
    releases=(">=0.11.0,<0.19.0",),
    code=("vllm.v1.attention.backends.mla.indexer:DeepseekV32IndexerMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm", pull=36178),
    hits=AllOf(Is("attention", "sparse MLA"), Unseen("prompts so long that tokens of a step times context exceed free memory")),
    avoid="Lower --max-num-batched-tokens or --gpu-memory-utilization.",
    harm=CRASH,
)
