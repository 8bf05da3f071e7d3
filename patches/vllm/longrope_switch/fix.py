"""vllm.longrope-switch, as data."""

from attnfix.compat.doctor.condition import ON, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT, SHARED_BATCH

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_CLASS = "Phi3LongRoPEScaledRotaryEmbedding"
_PLACES = f"{_ROTARY}.phi3_long_rope_scaled_rope:{_CLASS}", f"{_ROTARY}:{_CLASS}"

FIX = Fix(
    id="vllm.longrope-switch",
    title="A request beyond the original context length garbles itself and those beside it (LongRoPE)",
    symptom=(
        "Text of Phi-3, Phi-4-mini or MiniCPM turns random where a request passes the original context length (4096). "
        "Requests that share a step with it turn random, too. No error."
    ),
    symptoms=(SHARED_BATCH, LONG_PROMPT, GARBAGE),
    cause=(
        "Each step takes the short or the long rotary table for all its tokens. It takes the long one where any position lies "
        "beyond the original length. Keys in the cache stay rotated by the other table."
    ),
    correction=(
        "Where --max-model-len is above the original length, the long table is the only one, as in 0.11.1. Short requests of "
        "such a server get it, too, and their answers change. A server with a KV connector stays as it is, since its KV has "
        "readers elsewhere. So does one that loads a tensorizer file, which brings tables of its own. Compiled code has a "
        "cache entry of its own; where `cache_dir` names its folder, all stays as it is. Models of one process share the table."
    ),
    upstream=Upstream("vllm-project/vllm", pull=27431, issue=27414),
    hardware="any GPU (models with LongRoPE and a --max-model-len above the original context length)",
    default_reason=(
        "answers of a server change that never gets a long request, and is right then. 0.11.1 changes them in the same way"
    ),
    targets=(
        Target(wrap.get_rope, needed=wrap.grows_beyond, paths=(f"{_ROTARY}:get_rope",)),
        Target(wrap.compute_hash, needed=wrap.is_long, paths=("vllm.envs:compute_hash",)),
    ),
    witnesses=(
        *(f"{place}.__init__" for place in _PLACES),
        *(f"{place}.forward" for place in _PLACES),
        *(f"{place}._compute_cos_sin_cache" for place in _PLACES),
    ),
    cost="The short table's memory is freed. The model is compiled once more after the fix is switched on.",
    avoid="Set `--max-model-len` to `original_max_position_embeddings` of config.json.",
    expect=(
        "On one replica, ask a prompt that is longer than the original context length, and short ones beside it. All answer "
        "as alone. Each model that is loaded counts once."
    ),
    look_does="its look at the hash goes by what a correction stored",
    stays_out=AnyOf(Is("KV connector", ON), Is("--load-format", "tensorizer")),
    hits=Is("lengths beyond LongRoPE's original", ON),
)
