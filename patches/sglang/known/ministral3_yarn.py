"""sglang.ministral3-yarn, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

_YARN = "YaRNScalingRotaryEmbedding.__init__"

BUG = KnownBug(
    id="sglang.ministral3-yarn",
    title="Worse answers of Ministral 3 and Devstral 2: YaRN ignores mscale, and scales attention up",
    symptom="Evaluations score far below Transformers. Queries and keys are scaled up, where the checkpoint asks for one.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.6.post1,<0.5.16",),
    code=(f"sglang.srt.layers.rotary_embedding:{_YARN}", f"sglang.srt.layers.rotary_embedding.yarn:{_YARN}"),
    upstream=Upstream("sgl-project/sglang", pull=31232),
    hits=AllOf(
        Not(Is("--model-impl", "transformers")),
        AnyOf(
            Is("architecture", "Ministral3ForCausalLM"),
            AllOf(Is("architecture", "Mistral3ForConditionalGeneration"), Unseen("whether its text model is a Ministral 3")),
        ),
    ),
    avoid='Add `"attn_factor": 0.783`, which is 1 / (0.1 ln 16 + 1), to `rope_parameters` of the text model in config.json. '
    "Or set `--model-impl transformers`, for Mistral3ForConditionalGeneration from 0.5.10 on.",
)
