"""sglang.yarn-attention-factor, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

_YARN = "YaRNScalingRotaryEmbedding.__init__"

BUG = KnownBug(
    id="sglang.yarn-attention-factor",
    title="Ministral 3 repeats itself: YaRN scales every attention score by 1.63",
    symptom="Answers are worse than those of transformers at every length, and repeat themselves.",
    symptoms=(GARBAGE,),
    releases=(">=0.5.6.post1,<0.5.16",),
    code=(f"sglang.srt.layers.rotary_embedding:{_YARN}", f"sglang.srt.layers.rotary_embedding.yarn:{_YARN}"),
    upstream=Upstream("sgl-project/sglang", pull=22711),
    hits=AnyOf(
        Is("architecture", "Ministral3ForCausalLM"),
        AllOf(Is("architecture", "Mistral3ForConditionalGeneration"), Unseen("whether the text model is a Ministral 3")),
    ),
    avoid='Add `"attn_factor": 0.783`, which is 1 / (0.1 ln 16 + 1), to `rope_parameters` of the text model in config.json.',
)
