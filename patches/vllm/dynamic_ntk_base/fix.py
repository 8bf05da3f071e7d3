"""vllm.dynamic-ntk-base, as data."""

from attnfix.compat.doctor.condition import ON, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_CLASS = "DynamicNTKScalingRotaryEmbedding"
_PLACES = tuple(f"{_ROTARY}{part}" for part in ("", ".dynamic_ntk_scaling_rope"))

FIX = Fix(
    id="vllm.dynamic-ntk-base",
    title="Every position is rotated as if the prompt were at its longest (InternLM, dynamic NTK)",
    symptom="Answers are worse than those of transformers at shorter ones: the base is scaled for `factor` times the context.",
    symptoms=(GARBAGE,),
    cause=(
        "Dynamic NTK scales the base of the rotary embedding only for requests beyond the trained length. The engine's one "
        "table is scaled for requests of `factor` times that length."
    ),
    correction=(
        "Where --max-model-len is at most `max_position_embeddings`, the rotary table of all layers is written anew and not "
        "scaled, as in 0.22.0. A server of longer requests stays as it is: no table is right for all of them. So does one "
        "with a KV connector, since its keys have readers elsewhere, and one that loads a tensorizer file, which brings tables "
        "of its own. Models of one process that have the same settings share the table."
    ),
    upstream=Upstream("vllm-project/vllm", pull=41277, issue=41236),
    hardware="any GPU (checkpoints with dynamic NTK, and a --max-model-len within `max_position_embeddings`)",
    default=True,
    default_reason=(
        "silent wrong output of published checkpoints; 0.22.0 has the same rows. Their values change, and neither the "
        "table's shape nor a kernel"
    ),
    targets=(Target(wrap.get_rope, needed=wrap.scales, paths=(f"{_ROTARY}:get_rope",)),),
    # The table and its frequencies, in a file and later a folder
    witnesses=(
        *(f"{place}:{_CLASS}" for place in _PLACES),
        *(f"{_ROTARY}{part}:RotaryEmbedding.__init__" for part in ("", ".base")),
        f"{_ROTARY}:RotaryEmbedding._compute_inv_freq",
        f"{_ROTARY}.base:RotaryEmbedding._compute_inv_freq",
        f"{_ROTARY}.base:RotaryEmbeddingBase.__init__",
        f"{_ROTARY}.base:RotaryEmbeddingBase._compute_inv_freq",
    ),
    cost="One table is computed twice while the model is loaded; nothing while it serves.",
    avoid="Set `rope_scaling` to null in config.json where prompts stay within `max_position_embeddings`.",
    expect=(
        "On one replica with `--max-model-len` at `max_position_embeddings`, answers become those of Transformers, and texts "
        "at temperature 0 change. Each set of settings that a process loads counts once."
    ),
    stays_out=AnyOf(Is("requests beyond the trained length", ON), Is("KV connector", ON), Is("--load-format", "tensorizer")),
    hits=Is("dynamic NTK", ON),
)
