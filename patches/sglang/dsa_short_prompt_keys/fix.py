"""sglang.dsa-short-prompt-keys, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT

from . import wrap

_INDEXER = "sglang.srt.layers.attention.nsa.nsa_indexer:Indexer"
#: Its name from 0.5.13 on, of which the former is an alias there
_LATER = "sglang.srt.layers.attention.dsa.dsa_indexer:Indexer"
_ROTARY = "sglang.srt.layers.rotary_embedding"

FIX = Fix(
    id="sglang.dsa-short-prompt-keys",
    title="DeepSeek-V3.2 and GLM-5 lose some tokens of short prompts once a conversation passes 2048 tokens",
    symptom="Large batches of short prompts store some index keys rotated twice, and the indexer does not find them later.",
    symptoms=(LONG_PROMPT, CACHED_PREFIX),
    cause=(
        "A prefill batch within 2048 tokens a request computes index keys alone. The rotary kernel gets one tensor as queries "
        "and as keys, writes both in place, and in parallel."
    ),
    correction="The kernel gets a copy as queries. Batches with longer requests stay as they are.",
    # The pull request brought a kernel whose threads read such keys before they write them
    upstream=Upstream("sgl-project/sglang", pull=18844),
    hardware="NVIDIA GPUs (DeepSeek-V3.2, GLM-5)",
    default=True,
    default_reason=(
        "silent wrong output; upstream's kernel of 0.5.10 rotates each key once, and 0.5.19 hands it other queries, too"
    ),
    targets=(
        Target(
            wrap.get_k_bf16,
            needed=wrap.in_place,
            repeatable=True,
            paths=(f"{_LATER}._get_k_bf16", f"{_INDEXER}._get_k_bf16"),
        ),
    ),
    # Callers of the rotary embedding, and what chooses its kernel
    witnesses=(
        f"{_INDEXER}.__init__",
        f"{_INDEXER}._forward_cuda_k_only",
        f"{_INDEXER}._get_q_k_bf16",
        f"{_INDEXER}.forward_cuda",
        f"{_ROTARY}:get_rope_wrapper",
        f"{_ROTARY}:get_rope",
        f"{_ROTARY}:RotaryEmbedding.__init__",
        f"{_ROTARY}:RotaryEmbedding.forward_cuda",
        f"{_ROTARY}:DeepseekScalingRotaryEmbedding.__init__",
        "sglang.jit_kernel.rope:apply_rope_with_cos_sin_cache_inplace",
    ),
    cost="A copy of 128 bytes a token and layer, in prefill batches of short prompts alone.",
    avoid="Nothing within the release is sure to avoid it; take release 0.5.10.",
    expect=(
        "On one replica, answers to follow-up turns of more than 2048 tokens become those of 0.5.10. Storage that a server "
        "without the fix filled, as of HiCache, has keys that were rotated twice: empty it."
    ),
    hits=AllOf(Is("GPU", "NVIDIA"), Is("attention", "sparse MLA"), Is("index keys without queries", ON)),
)
