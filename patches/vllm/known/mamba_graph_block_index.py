"""vllm.mamba-graph-block-index, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, GRAPHS

BUG = KnownBug(
    id="vllm.mamba-graph-block-index",
    title="NaN or garbage with prefix caching: decode graphs look for states in blocks of old steps (Mamba2)",
    symptom="Most layers of a Nemotron or Bamba read stale block indices once a decode graph is replayed.",
    symptoms=(CACHED_PREFIX, GRAPHS, GARBAGE),
    releases=(">=0.14.0,<0.17.0",),
    code=("vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder.update_block_table",),
    upstream=Upstream("vllm-project/vllm", pull=34874, issue=34865),
    hits=AllOf(
        Is("Mamba2 layers", ON),
        Is("cache mode of states", "all"),
        Is("full CUDA graphs", ON),
        Unseen("several KV cache groups of Mamba layers, as where these outnumber those of attention"),
    ),
    avoid="Start with `--no-enable-prefix-caching`, or with `--compilation-config.cudagraph_mode PIECEWISE`.",
)
