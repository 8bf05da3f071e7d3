"""sglang.gated-split-views, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT

_KERNEL = "sglang.srt.layers.attention.fla.fused_gdn_gating:fused_gdn_gating_kernel"

BUG = KnownBug(
    id="sglang.gated-split-views",
    title="Bad answers of Qwen3.5-27B: the gates of its linear layers are read from wrong addresses",
    symptom="Tokens of a prompt decay by gates of other tokens and heads, so that the model loses most of its context.",
    symptoms=(GARBAGE, LONG_PROMPT),
    releases=(">=0.5.10,<0.5.11",),
    code=(_KERNEL,),
    upstream=Upstream("sgl-project/sglang", pull=22312, issue=22311),
    hits=AllOf(
        Is("architecture", "Qwen3_5ForConditionalGeneration"),
        Unseen("whether linear_num_value_heads is not 1, 2 or 4 times linear_num_key_heads, as in Qwen3.5-27B"),
        Not(Is("--device", "npu", "cpu")),
    ),
    avoid="Nothing within the release.",
)
