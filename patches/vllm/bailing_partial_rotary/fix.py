"""vllm.bailing-partial-rotary, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE

from . import wrap

_ATTENTION, _ROTARY = "vllm.model_executor.models.bailing_moe:BailingAttention", "vllm.model_executor.layers.rotary_embedding"

FIX = Fix(
    id="vllm.bailing-partial-rotary",
    title="Ling and Ring rotate whole heads where config.json has `partial_rotary_factor` and no `rotary_dim`",
    symptom="Ling-flash-2.0, among others, answers with garbage from the first token on, whatever the attention backend.",
    symptoms=(GARBAGE,),
    cause=(
        "Each layer takes the rotated width of `rotary_dim`, else all of a head. It writes that over `partial_rotary_factor`, "
        "which says what a checkpoint without `rotary_dim` means. From 0.23.0 on it reads the factor, but not among the "
        "settings of RoPE, where transformers 5.20 and newer has it."
    ),
    correction=(
        "Before the first layer is made, `rotary_dim` of the config is set to the share of a head that the factor says: layers "
        "rotate as in 0.23.0 where that reads it. Compiled code has a cache entry of its own; where `cache_dir` names its "
        "folder, all stays as it is. So does a server with a KV connector, since its keys have readers elsewhere, and one that "
        "loads a tensorizer file, which brings tables of its own. With `enable_qk_norm_rope_fusion` all stays, too: its kernel "
        "misreads narrow tables (issue 51049)."
    ),
    upstream=Upstream("vllm-project/vllm", pull=43770),
    hardware="any GPU (checkpoints with `partial_rotary_factor` and no `rotary_dim`)",
    default=True,
    default_reason="garbage from published models by default; 0.23.0 rotates the same width where it reads the factor",
    targets=(
        Target(wrap.init, needed=wrap.width_unread, paths=(f"{_ATTENTION}.__init__",)),
        Target(wrap.compute_hash, needed=wrap.is_corrected, paths=("vllm.config.vllm:VllmConfig.compute_hash",)),
    ),
    witnesses=(
        f"{_ATTENTION}.forward",
        f"{_ROTARY}:get_rope",
        f"{_ROTARY}.base:RotaryEmbedding.__init__",
        f"{_ROTARY}.base:RotaryEmbedding.forward_native",
        f"{_ROTARY}.base:RotaryEmbedding.forward_static",
        f"{_ROTARY}.base:RotaryEmbeddingBase.__init__",
    ),
    cost="Nothing while it serves; less is rotated. The model is compiled once more after it is switched on.",
    avoid="Name the rotated width: `--hf-overrides '{\"rotary_dim\": 64}'` for heads of 128 and a factor of 0.5.",
    expect="On one replica, garbage becomes answers. Each model counts once, when it is loaded.",
    look_does="its look at the hash goes by what a correction stored",
    stays_out=AnyOf(
        Is("KV connector", ON),
        Is("--load-format", "tensorizer"),
        Given("--compilation-config.cache_dir"),
        Given("--compilation-config.pass_config.enable_qk_norm_rope_fusion"),
    ),
    hits=AllOf(
        Is("architecture", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "SarvamMoEForCausalLM"),
        Is("share of a head that is rotated", "not read"),
    ),
)
