"""vllm.ling-rope-settings, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.ling-rope-settings",
    title="Ling and Ring rotate whole heads where `partial_rotary_factor` is among the settings of RoPE alone",
    symptom="Ling-flash-2.0, among others, answers with garbage, as below 0.23.0.",
    symptoms=(GARBAGE,),
    releases=(">=0.23.0,<=0.33.0",),
    code=("vllm.model_executor.models.bailing_moe:BailingAttention.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=43770),
    hits=AllOf(
        Is("architecture", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "SarvamMoEForCausalLM"),
        Is("share of a head that is rotated", "not read"),
        Unseen("transformers 5.20 or newer, or a config.json that it saved"),
    ),
    avoid="Name the rotated width: `--hf-overrides '{\"rotary_dim\": 64}'` for heads of 128 and a factor of 0.5.",
)
