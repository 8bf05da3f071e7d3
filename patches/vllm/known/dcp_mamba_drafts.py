"""vllm.dcp-mamba-drafts, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, AnyOf, Is, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.dcp-mamba-drafts",
    title="Hybrid models with drafts go wrong after a rejected draft under decode context parallelism",
    symptom=(
        "With `--decode-context-parallel-size` above 1, states of Mamba layers take in rejected drafts: all later tokens "
        "are wrong."
    ),
    symptoms=(PARALLEL, SPECULATION),
    releases=(">=0.17.0,<=0.33.0",),
    code=(
        "vllm.v1.attention.backend:AttentionMetadataBuilder._init_reorder_batch_threshold",
        "vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder.__init__",
    ),
    upstream=Upstream("vllm-project/vllm", issue=55894, report="vllm-dcp-mamba-drafts"),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("linear attention", OFF),
        Above("decode context parallel size", 1),
        Is("speculative decoding", ON),
        AnyOf(Since("0.26.0"), Is("cached prefixes of a hybrid model", OFF)),
    ),
    avoid="Serve without drafts, or without `--decode-context-parallel-size`.",
)
