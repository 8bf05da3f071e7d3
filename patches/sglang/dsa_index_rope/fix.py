"""sglang.dsa-index-rope, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import LONG_PROMPT

from . import wrap

_INDEXER = "sglang.srt.layers.attention.nsa.nsa_indexer:Indexer"
_LATER = "sglang.srt.layers.attention.dsa.dsa_indexer:Indexer"
_ROTARY = "sglang.srt.layers.rotary_embedding"

FIX = Fix(
    id="sglang.dsa-index-rope",
    title="DeepSeek-V3.2 answers long prompts worse: its indexer pairs the wrong dimensions in RoPE",
    symptom=(
        "DeepSeek-V3.2 or V3.2-Exp misses facts in prompts of more than 2048 tokens that its reference finds. No error. "
        "Shorter prompts are right."
    ),
    symptoms=(LONG_PROMPT,),
    cause=(
        "Beyond 2048 tokens, the indexer selects the tokens that attention reads. Its queries and keys are rotated in "
        "interleaved pairs. The checkpoint was trained with pairs of halves, as in 0.5.6."
    ),
    correction=(
        "Each indexer gets a rotary embedding of the other style when it is made. Attention keeps its own. Servers with "
        "disaggregated prefill or decode stay as they are: the other side may rotate in pairs. Ascend NPUs stay as they are, "
        "too."
    ),
    upstream=Upstream("sgl-project/sglang", issue=13530),
    hardware="NVIDIA GPUs (DeepSeek-V3.2)",
    default=True,
    default_reason=(
        "silent wrong output; 0.5.6 has the same style. Keys of both styles never meet: a server with readers of its keys "
        "stays as it is"
    ),
    targets=(Target(wrap.init, needed=wrap.on_one_server, paths=(f"{_INDEXER}.__init__", f"{_LATER}.__init__")),),
    # Callers of the rotary embedding, and what its style decides
    witnesses=(
        f"{_INDEXER}._get_q_k_bf16",
        f"{_INDEXER}._get_k_bf16",
        f"{_ROTARY}:get_rope_wrapper",
        f"{_ROTARY}:get_rope",
        f"{_ROTARY}:RotaryEmbedding.forward_cuda",
        f"{_ROTARY}:DeepseekScalingRotaryEmbedding.__init__",
        "sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA.__init__",
    ),
    cost=("A second rotary table for all layers: at most 130 MB of GPU memory for 163,840 positions. Nothing while it serves."),
    avoid="Nothing within the release avoids it; take release 0.5.6.",
    expect=(
        "On one replica, ask for a fact within a prompt of some 30,000 tokens: answers become those of 0.5.6. Each layer "
        "counts once, when the model is loaded. Prompts of up to 2048 tokens keep their answers."
    ),
    stays_out=Is("--disaggregation-mode", "prefill", "decode"),
    hits=AllOf(Is("GPU", "NVIDIA"), Is("attention", "sparse MLA")),
)
