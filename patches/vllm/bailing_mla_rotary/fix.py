"""vllm.bailing-mla-rotary, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT

from . import wrap

_MODEL, _ROTARY = "vllm.model_executor.models.bailing_moe_linear", "vllm.model_executor.layers.rotary_embedding"

FIX = Fix(
    id="vllm.bailing-mla-rotary",
    title="Ling and Ring 2.5 and 2.6 rotate half of what they should in layers of MLA",
    symptom="Answers are worse than those of SGLang or transformers, the more so the longer the prompt.",
    symptoms=(GARBAGE, LONG_PROMPT),
    cause=(
        "`partial_rotary_factor` of config.json is about layers of linear attention. The engine applies it to the rotated "
        "dimensions of MLA, too, which are a part of a head by themselves."
    ),
    correction=(
        "A layer of MLA is made with a factor of 1, as in 0.20.1; layers of linear attention keep theirs. Compiled code has a "
        "cache entry of its own; where `cache_dir` names its folder, all stays as it is. So does a server with a KV connector, "
        "since its keys have readers elsewhere, and one that loads a tensorizer file, which brings tables of its own."
    ),
    upstream=Upstream("vllm-project/vllm", pull=41185),
    hardware="any GPU (Ling and Ring 2.5 and 2.6)",
    default=True,
    default_reason="silent wrong output of published models by default, and 0.20.1 rotates the same dimensions",
    targets=(
        Target(wrap.init, needed=wrap.rotates_a_part, paths=(f"{_MODEL}:BailingMoeV25MLAAttention.__init__",)),
        Target(wrap.compute_hash, needed=wrap.is_corrected, paths=("vllm.config.vllm:VllmConfig.compute_hash",)),
    ),
    witnesses=(
        f"{_MODEL}:_build_rope_parameters",
        f"{_ROTARY}:get_rope",
        f"{_ROTARY}.base:RotaryEmbedding.__init__",
        f"{_ROTARY}.base:RotaryEmbedding.forward_native",
        f"{_ROTARY}.base:RotaryEmbedding.forward_static",
        f"{_ROTARY}.base:RotaryEmbeddingBase.__init__",
    ),
    cost="Twice as many dimensions are rotated in a layer of MLA. The model is compiled once more after it is switched on.",
    avoid="Nothing within the release avoids it; take release 0.20.1.",
    expect=(
        "On one replica, answers become those of 0.20.1, and texts at temperature 0 change. Each layer of MLA counts once, "
        "when the model is loaded."
    ),
    look_does="its look at the hash goes by what a correction stored",
    stays_out=AnyOf(Is("KV connector", ON), Is("--load-format", "tensorizer"), Given("--compilation-config.cache_dir")),
    hits=AllOf(Is("architecture", "BailingMoeV2_5ForCausalLM"), Is("rotary factor of linear attention", ON)),
)
