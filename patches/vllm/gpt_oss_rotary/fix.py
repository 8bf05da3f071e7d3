"""vllm.gpt-oss-rotary, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import BACKEND

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_ATTENTION = "vllm.model_executor.models.gpt_oss:OAIAttention"

FIX = Fix(
    id="vllm.gpt-oss-rotary",
    title="gpt-oss answers slightly worse than its reference: the rotary correction range is rounded",
    symptom=(
        "Log probabilities of gpt-oss differ from the reference's at each length, and more so at long ones. No error: "
        "`truncate` of its rope_scaling is not read."
    ),
    symptoms=(BACKEND,),
    cause=(
        "YaRN keeps short waves and stretches long ones. The bounds between them are rounded to whole dimensions. The "
        "checkpoint asks for bounds that are not rounded."
    ),
    correction=(
        "When the first layer is made, the rotary table of all layers is written anew from bounds that are not rounded, as in "
        "0.12.0. A server with a KV connector stays as it is, since its keys have readers elsewhere. So does one that loads a "
        "tensorizer file, which brings a table of its own. A second model of the same process shares the table."
    ),
    upstream=Upstream("vllm-project/vllm", pull=28244, issue=27722),
    hardware="any GPU (gpt-oss)",
    default=True,
    default_reason=(
        "silent wrong output of the published gpt-oss checkpoints; 0.12.0 has the same table. Its values change, and neither "
        "its shape nor a kernel"
    ),
    targets=(Target(wrap.make, needed=wrap.rounds, paths=(f"{_ATTENTION}.__init__",)),),
    witnesses=(
        f"{_ROTARY}:get_rope",
        f"{_ROTARY}.yarn_scaling_rope:YaRNScalingRotaryEmbedding",
        f"{_ROTARY}.common:yarn_find_correction_range",
        f"{_ROTARY}.common:yarn_find_correction_dim",
        f"{_ROTARY}.common:yarn_linear_ramp_mask",
    ),
    cost="One table is computed twice while the model is loaded; nothing while it serves.",
    avoid="Nothing within the release avoids it; take release 0.12.0.",
    expect=(
        "On one replica, log probabilities of a long prompt become those of the reference, and texts at temperature 0 change "
        "slightly. The first model that a process loads counts once."
    ),
    stays_out=AnyOf(Is("KV connector", ON), Is("--load-format", "tensorizer")),
    hits=AllOf(Is("architecture", "GptOssForCausalLM"), Is("bounds of YaRN that are not rounded", ON)),
)
