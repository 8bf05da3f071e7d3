"""sglang.yarn-settings, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import BACKEND, GARBAGE, LONG_PROMPT

from . import wrap

_ROTARY = "sglang.srt.layers.rotary_embedding"
_YARN = "YaRNScalingRotaryEmbedding"

FIX = Fix(
    id="sglang.yarn-settings",
    title="Worse answers of Ministral 3 and gpt-oss: settings of YaRN in the checkpoint are not read",
    symptom=(
        "Ministral 3 repeats itself, and scores far below Transformers, at each length. Up to 0.5.6.post2, log probabilities "
        "of gpt-oss differ from the reference's. Drafters with such settings draft worse. No error."
    ),
    symptoms=(GARBAGE, BACKEND, LONG_PROMPT),
    cause=(
        "`get_rope` drops settings. Without `mscale` and `mscale_all_dim`, queries and keys are scaled up: by 28 % each in "
        'Ministral 3. Without `"truncate": false`, the bounds between stretched and other waves are rounded to whole '
        "dimensions."
    ),
    correction=(
        "When the first layer is made, the rotary table is written anew from the settings, as in 0.5.7 (PR 14270) and 0.5.16. "
        "A server whose keys others share stays as it is: --disaggregation-mode, HiCache, LMCache and other caches. The scale "
        "stays where config.json has `attn_factor` or `attention_factor`. M-RoPE is left alone."
    ),
    upstream=Upstream("sgl-project/sglang", pull=31232),
    hardware="any GPU (checkpoints whose YaRN settings have `mscale` with `mscale_all_dim`, or `truncate` false)",
    default=True,
    default_reason=(
        "silent wrong output of published checkpoints; 0.5.7 and 0.5.16 have the same table. Its values change, and neither "
        "its shape nor a kernel"
    ),
    targets=(Target(wrap.get_rope, needed=wrap.unread, paths=(f"{_ROTARY}.factory:get_rope", f"{_ROTARY}:get_rope")),),
    # The table and its bounds, in a file and later a folder, and who says how the server was launched
    witnesses=(
        "sglang.srt.server_args:get_global_server_args",
        *(f"{_ROTARY}{part}:{_YARN}" for part in ("", ".yarn")),
        *(f"{_ROTARY}{part}:RotaryEmbedding.__init__" for part in ("", ".base")),
        *(f"{_ROTARY}:_yarn_{name}" for name in ("find_correction_range", "find_correction_dim", "linear_ramp_mask")),
        *(f"{_ROTARY}.yarn:yarn_{name}" for name in ("find_correction_range", "find_correction_dim", "linear_ramp_mask")),
    ),
    cost="One table is computed twice while the model is loaded; nothing while it serves.",
    avoid=(
        "For Ministral 3 add `attn_factor` to `rope_parameters` in config.json: 1 / (0.1 ln(factor) + 1), 0.783 for 16. Take "
        "it out for 0.5.16, which applies it beside the checkpoint's settings. For gpt-oss take release 0.5.7."
    ),
    expect=(
        "On one replica, answers of Ministral 3 become those of Transformers, and texts at temperature 0 change. Each set of "
        "settings that a process loads counts once."
    ),
    stays_out=Is("others that share keys", ON),
    hits=Is("settings of YaRN that are not read", ON),
)
