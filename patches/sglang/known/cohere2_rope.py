"""sglang.cohere2-rope, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="sglang.cohere2-rope",
    title="Worse answers of Command A and Command R7B: all layers rotate, and none has a window",
    symptom="Layers without position encoding get RoPE, and sliding-window layers attend to the whole context.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.5.1,<0.5.8",),
    code=("sglang.srt.models.commandr:CohereAttention.forward",),
    upstream=Upstream("sgl-project/sglang"),
    hits=Is("architecture", "Cohere2ForCausalLM"),
    avoid="Nothing within the release avoids it; take release 0.5.8, and fa3 or trtllm_mha there.",
)
