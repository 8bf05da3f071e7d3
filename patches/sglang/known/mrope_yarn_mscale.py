"""sglang.mrope-yarn-mscale, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

_ROTARY = "sglang.srt.layers.rotary_embedding"

BUG = KnownBug(
    id="sglang.mrope-yarn-mscale",
    title="No server starts where M-RoPE with YaRN has `mscale` in its settings: a TypeError",
    symptom="`YaRNScalingMRotaryEmbedding.__init__() got an unexpected keyword argument 'mscale'` at startup.",
    symptoms=(DIES,),
    releases=(">=0.5.16,<=0.5.23",),
    code=(f"{_ROTARY}.factory:get_rope", f"{_ROTARY}.mrope:YaRNScalingMRotaryEmbedding.__init__"),
    upstream=Upstream("sgl-project/sglang", pull=31232),  # which brought it
    harm=CRASH,
    hits=AllOf(Is("M-RoPE", ON), Unseen("YaRN with `mscale` or `mscale_all_dim` in the settings of RoPE")),
    avoid="Where both are equal, take them out, and set `attn_factor` to 1 / (0.1 · ln(factor) + 1).",
    ran=("0.5.16", "0.5.23"),
)
