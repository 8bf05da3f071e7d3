"""vllm.bailing-partial-rotary, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.bailing-partial-rotary",
    title="Ling and Ring rotate whole heads where config.json has `partial_rotary_factor` and no `rotary_dim`",
    symptom="Ling-flash-2.0, among others, answers with garbage from the first token on, whatever the attention backend.",
    symptoms=(GARBAGE,),
    releases=(">=0.13.0,<0.23.0",),
    code=("vllm.model_executor.models.bailing_moe:BailingAttention.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=43770),
    hits=AllOf(
        Is("architecture", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "SarvamMoEForCausalLM"),
        Unseen("`partial_rotary_factor` below 1 and no `rotary_dim` in config.json"),
    ),
    avoid="Name the rotated width: `--hf-overrides '{\"rotary_dim\": 64}'` for heads of 128 and a factor of 0.5.",
)
