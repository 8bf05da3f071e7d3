"""vllm.ministral3-query-scale, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import LONG_PROMPT

from . import wrap

_ATTENTION = "vllm.model_executor.models.mistral:MistralAttention"

FIX = Fix(
    id="vllm.ministral3-query-scale",
    title="Ministral 3 answers worse beyond its original context length, with a config of transformers' format",
    symptom="Answers of Ministral 3 get worse beyond 16,384 tokens, where config.json is read and not params.json. No error.",
    symptoms=(LONG_PROMPT,),
    cause=(
        "Queries beyond the original length are to be multiplied by a factor. The engine looks for it in `llama_4_scaling`, "
        "and config.json has `llama_4_scaling_beta` among its RoPE settings."
    ),
    correction=(
        "Each layer gets the scaling of config.json when it is made, and the engine's own code applies it. A server whose "
        "--max-model-len is within the original length stays as it is, since the factor is 1 there. Compiled code has a cache "
        "entry of its own; where `cache_dir` names its folder, all stays as it is."
    ),
    upstream=Upstream("vllm-project/vllm", issue=48621),
    hardware="any GPU (Ministral 3 from a config.json of transformers)",
    default_reason="no release of vLLM reads the setting yet, and no GPU has run the compiled model",
    targets=(
        Target(wrap.init, needed=wrap.unread, paths=(f"{_ATTENTION}.__init__",)),
        Target(wrap.compute_hash, needed=wrap.is_scaled, paths=("vllm.config.vllm:VllmConfig.compute_hash",)),
    ),
    witnesses=(f"{_ATTENTION}.forward", f"{_ATTENTION}._get_llama_4_attn_scale"),
    cost="One multiplication of queries in each layer. The model is compiled once more after the fix is switched on.",
    avoid=(
        "Serve Mistral's own files: `--config-format mistral --load-format mistral --tokenizer-mode mistral`. Or set "
        "`--max-model-len` to `original_max_position_embeddings` of config.json."
    ),
    expect=(
        "On one replica, ask for a fact within a prompt of some 100,000 tokens: answers become those of Transformers. Each "
        "layer counts once, when the model is loaded. Prompts within the original length keep their answers."
    ),
    look_does="its look at the hash goes by what a correction stored",
    stays_out=Given("--compilation-config.cache_dir"),
    hits=AllOf(
        Is("config.json is read", ON),
        Is("scaling of queries that is not read", ON),
        Is("lengths beyond the original of query scaling", ON),
    ),
)
