"""vllm.dcp-mamba-drafts-018, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.dcp-mamba-drafts-018",
    title="Hybrid models with drafts go wrong under decode context parallelism (0.17 and 0.18)",
    symptom="With `--decode-context-parallel-size` above 1, layers of Mamba2 go on from states behind refused drafts.",
    symptoms=(PARALLEL, SPECULATION),
    releases=(">=0.17.0,<0.19.0",),
    code=(
        "vllm.v1.attention.backend:AttentionMetadataBuilder._init_reorder_batch_threshold",
        "vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder.__init__",
        "vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",
    ),
    upstream=Upstream("vllm-project/vllm", issue=55894, report="vllm-dcp-mamba-drafts"),
    hits=AllOf(
        Is("Mamba2 layers", ON),
        Above("decode context parallel size", 1),
        Is("speculative decoding", ON),
        Is("cached prefixes of a hybrid model", OFF),
    ),
    avoid="Serve without drafts, or without `--decode-context-parallel-size`.",
)
