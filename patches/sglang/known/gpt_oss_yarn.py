"""sglang.gpt-oss-yarn, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="sglang.gpt-oss-yarn",
    title="Worse answers of gpt-oss: rotary frequencies of YaRN are rounded to whole dimensions",
    symptom='The model asks for "truncate": false, and the range of scaled frequencies is rounded all the same.',
    symptoms=(LONG_PROMPT,),
    releases=(">=0.5.1,<0.5.7",),
    code=("sglang.srt.layers.rotary_embedding:YaRNScalingRotaryEmbedding._compute_inv_freq",),
    upstream=Upstream("sgl-project/sglang"),
    hits=Is("architecture", "GptOssForCausalLM"),
    avoid="Nothing within the release avoids it; take release 0.5.7.",
)
