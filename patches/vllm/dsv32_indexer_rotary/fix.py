"""vllm.dsv32-indexer-rotary, as data."""

from attnfix.compat.doctor.condition import ON, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import LONG_PROMPT

from . import wrap

_MODEL, _ROTARY = "vllm.model_executor.models.deepseek_v2", "vllm.model_executor.layers.rotary_embedding"

FIX = Fix(
    id="vllm.dsv32-indexer-rotary",
    title="DeepSeek-V3.2 answers long prompts worse: its indexer pairs the wrong dimensions in RoPE",
    symptom=(
        "DeepSeek-V3.2 or V3.2-Exp overlooks facts that its reference finds, in prompts of more than 2048 tokens. No error. "
        "Shorter prompts are right."
    ),
    symptoms=(LONG_PROMPT,),
    cause=(
        "Beyond 2048 tokens, the indexer selects the tokens that attention reads. It rotates by attention's rotary embedding, "
        "in interleaved pairs. The checkpoint was trained with pairs of halves, as in 0.12.0."
    ),
    correction=(
        "Each indexer gets a rotary embedding of the other style when it is made. Attention keeps its own. A server with a KV "
        "connector stays as it is, since its keys have readers elsewhere. So does one that loads a tensorizer file. The same "
        "holds for `cache_dir` of the compilation config and for VLLM_USE_AOT_COMPILE: compiled code may lie there that "
        "rotates in pairs."
    ),
    upstream=Upstream("vllm-project/vllm", pull=28968),
    hardware="any GPU (DeepSeek-V3.2)",
    default_reason="the engine compiles another function, which no GPU has run compiled; 0.12.0 computes the same",
    targets=(Target(wrap.init, needed=wrap.has_an_indexer, paths=(f"{_MODEL}:DeepseekV2MLAAttention.__init__",)),),
    # The indexer's callers, and what the style of a rotary embedding decides
    witnesses=(
        f"{_MODEL}:Indexer.forward",
        "vllm.model_executor.layers.mla:MultiHeadLatentAttention.forward_native",
        "vllm.model_executor.layers.mla:MultiHeadLatentAttentionWrapper.forward_native",
        f"{_ROTARY}:get_rope",
        f"{_ROTARY}.deepseek_scaling_rope:DeepseekScalingRotaryEmbedding",
    ),
    cost="A second rotary table for all layers: 21 MB of GPU memory for 163,840 positions. The model is compiled once more.",
    avoid="Nothing within the release avoids it; take release 0.12.0.",
    expect=(
        "On one replica, ask for a fact within a prompt of some 30,000 tokens: answers become those of 0.12.0. Each layer "
        "counts once, when the model is loaded. Prompts of up to 2048 tokens keep their answers."
    ),
    stays_out=AnyOf(Is("KV connector", ON), Is("--load-format", "tensorizer")),
    hits=Is("attention", "sparse MLA"),
)
