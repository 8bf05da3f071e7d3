"""vllm.bailing-mla-rotary, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.bailing-mla-rotary",
    title="Ling and Ring 2.5 and 2.6 rotate half of what they should in layers of MLA",
    symptom="Answers are worse than those of SGLang or transformers, the more so the longer the prompt.",
    symptoms=(GARBAGE,),
    releases=(">=0.17.0,<0.20.1",),
    code=("vllm.model_executor.models.bailing_moe_linear:BailingMoeV25MLAAttention.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=41185),
    hits=AllOf(
        Is("architecture", "BailingMoeV2_5ForCausalLM"),
        Unseen("`partial_rotary_factor` below 1 in config.json, as of Ling-2.6-flash"),
    ),
    avoid="Nothing within the release avoids it; take release 0.20.1.",
)
