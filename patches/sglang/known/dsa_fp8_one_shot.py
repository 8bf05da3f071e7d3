"""sglang.dsa-fp8-one-shot, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, KV_SCALES

BUG = KnownBug(
    id="sglang.dsa-fp8-one-shot",
    title="Wrong answers of DeepSeek V3.2 behind short cached prefixes with an FP8 KV cache on Hopper",
    symptom="A prompt of up to 2048 tokens with a cached prefix reads FP8 values without scales, and scales as positions.",
    symptoms=(CACHED_PREFIX, KV_SCALES),
    releases=(">=0.5.5,<0.5.5.post1",),
    code=("sglang.srt.models.deepseek_v2:handle_attention_nsa",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        Is("compute capability", 90),
        Is("--kv-cache-dtype", "fp8_e4m3"),
        Not(Is("--disaggregation-mode", "decode")),
        AnyOf(Not(Given("--disable-radix-cache")), Unseen("prompts in chunks that end before token 2048")),
    ),
    avoid="Set --kv-cache-dtype bfloat16.",
)
