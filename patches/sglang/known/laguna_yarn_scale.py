"""sglang.laguna-yarn-scale, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="sglang.laguna-yarn-scale",
    title="Worse answers of Laguna: the checkpoint's attention factor of YaRN multiplies the engine's own",
    symptom="Laguna scores far below other engines, 20 points of GSM8K for S 2.1. No error.",
    symptoms=(GARBAGE,),
    releases=(">=0.5.12,<0.5.18",),
    code=("sglang.srt.configs.laguna:_to_sglang_rope_scaling",),
    upstream=Upstream("sgl-project/sglang", pull=33558),
    hits=Is("architecture", "LagunaForCausalLM"),
    avoid="Divide `attention_factor` in config.json by 0.1 · ln(factor) + 1.",
    ran=("0.5.12", "0.5.17"),
)
