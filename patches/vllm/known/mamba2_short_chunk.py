"""vllm.mamba2-short-chunk, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.mamba2-short-chunk",
    title="A prompt forgets its last tokens beside verified drafts (Mamba2, speculative decoding)",
    symptom="Answers are garbage where a prompt, or its last chunk, is as short as a step with drafts.",
    symptoms=(SPECULATION, SHARED_BATCH),
    releases=(">=0.17.0,<0.19.0",),
    code=("vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",),
    upstream=Upstream("vllm-project/vllm", pull=35447),
    hits=AllOf(
        Is("Mamba2 layers", ON),
        Is("speculative decoding", ON),
        Unseen("a chunk of a prompt that has two tokens or more, and at most one more than there are drafts"),
    ),
    avoid="Leave out --speculative-config.",
)
