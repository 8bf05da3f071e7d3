"""vllm.yarn-attention-factor, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"

FIX = Fix(
    id="vllm.yarn-attention-factor",
    title="Worse answers from checkpoints whose YaRN settings name an attention factor (Ministral 3, Laguna)",
    symptom=(
        "Answers are worse than those of Transformers, at every length: `attention_factor`, `mscale` and `mscale_all_dim` of "
        "YaRN are not read."
    ),
    symptoms=(GARBAGE,),
    cause=(
        "`get_rope` drops these settings. Queries and keys are scaled by 0.1 · ln(factor) + 1 instead, by 28 % each in "
        "Ministral 3, whose settings ask for 1."
    ),
    correction=(
        "When the first layer is made, the rotary table of all layers is written anew with the checkpoint's factor, as in "
        "0.30.0. `attn_factor` other than 1, and `apply_yarn_scaling` where the engine reads it, stay what counts. Both "
        "`mscale` and `mscale_all_dim` count beside a `llama_4_scaling_beta`: the first config.json of Mistral Medium 3.5 "
        "has them by mistake. A server with a KV connector stays as it is, since its keys have readers elsewhere. So does one "
        "that loads a tensorizer file, which brings tables of its own. Models of one process that have the same settings share "
        "the table."
    ),
    upstream=Upstream("vllm-project/vllm", pull=56446, issue=48621),
    hardware=(
        "any GPU (checkpoints whose YaRN settings have `attention_factor`, or `mscale`, `mscale_all_dim` and "
        "`llama_4_scaling_beta`)"
    ),
    default=True,
    default_reason=(
        "silent wrong output of published checkpoints, for which 0.30.0 has the same table. Its values change, and neither its "
        "shape nor a kernel"
    ),
    targets=(Target(wrap.get_rope, needed=wrap.unread, paths=(f"{_ROTARY}:get_rope",)),),
    # The table and its factor, in a file and later a folder
    witnesses=(
        *(f"{_ROTARY}{part}:YaRNScalingRotaryEmbedding" for part in ("", ".yarn_scaling_rope")),
        *(f"{_ROTARY}{part}:MRotaryEmbedding.__init__" for part in ("", ".mrope")),
        f"{_ROTARY}.mrope:MRotaryEmbedding._compute_cos_sin_cache",
        f"{_ROTARY}:_yarn_get_mscale",
        f"{_ROTARY}.common:yarn_get_mscale",
        *(f"{_ROTARY}{part}:RotaryEmbedding.__init__" for part in ("", ".base")),
        f"{_ROTARY}.base:RotaryEmbeddingBase.__init__",
    ),
    cost="One table is computed twice while the model is loaded; nothing while it serves.",
    avoid="Set `attn_factor` in the YaRN settings of config.json: the wanted attention factor over 0.1 · ln(factor) + 1.",
    expect=(
        "On one replica, answers of Ministral 3 become those of Transformers, and texts at temperature 0 change. Each set of "
        "settings that a process loads counts once."
    ),
    stays_out=AnyOf(Is("KV connector", ON), Is("--load-format", "tensorizer")),
    hits=AllOf(Is("config.json is read", ON), Is("own attention factor of YaRN", ON)),
)
