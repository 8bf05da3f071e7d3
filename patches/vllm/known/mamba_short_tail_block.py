"""vllm.mamba-short-tail-block, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.doctor.vllm import ATTENTION_FREE
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.mamba-short-tail-block",
    title="Cached prefixes get convolution states of other tokens (Mamba, cache mode all)",
    symptom=(
        "Later hits of a prefix answer worse: a short rest wrote its convolution state over the shared one, or a chunk just "
        "left a block."
    ),
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.11.1,<0.32.0",),
    code=(
        "vllm.model_executor.layers.mamba.ops.causal_conv1d:_causal_conv1d_fwd_kernel",
        "vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",
    ),
    upstream=Upstream("vllm-project/vllm", pull=56196),
    hits=AllOf(
        AnyOf(Is("recurrent layers", ON), Is("architecture", *ATTENTION_FREE)),
        Is("cache mode of states", "all"),
        Unseen(
            "a chunk of two tokens that begins a block, as behind a cached prefix; of up to eight that ends behind one; or "
            "that begins one or two tokens before the end of a block"
        ),
    ),
    avoid="Start with `--mamba-cache-mode align` (from 0.15.0 on), or with `--no-enable-prefix-caching`.",
    ran=("0.11.1", "0.31.0"),
)
