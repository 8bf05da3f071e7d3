"""vllm.gpt-oss-rotary, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

BUG = KnownBug(
    id="vllm.gpt-oss-rotary",
    title="gpt-oss answers slightly worse than its reference: the rotary correction range is rounded",
    symptom=(
        "Log probabilities of gpt-oss differ from the reference's at each length: `truncate` of its rope_scaling is not read."
    ),
    symptoms=(BACKEND,),
    releases=(">=0.10.1,<0.12.0",),
    code=("vllm.model_executor.models.gpt_oss:OAIAttention.__init__",),
    upstream=Upstream("vllm-project/vllm", issue=27722, pull=28244),
    hits=Is("architecture", "GptOssForCausalLM"),
    avoid="Nothing within the release avoids it; take release 0.12.0.",
)
