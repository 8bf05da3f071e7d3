"""vllm.yarn-rounded-range, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="vllm.yarn-rounded-range",
    title="Worse answers of YaRN models that ask for `truncate` false: rotary frequencies are rounded",
    symptom="Answers are slightly worse at each length, and more so at long ones. Drafters with such a table draft worse.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.10.0,<0.12.0",),
    code=("vllm.model_executor.layers.rotary_embedding:get_rope",),
    upstream=Upstream("vllm-project/vllm", pull=28244),
    hits=AllOf(Is("bounds of YaRN that are not rounded", ON), Not(Is("architecture", "GptOssForCausalLM"))),
    avoid="Nothing within the release avoids it; take release 0.12.0.",
)
