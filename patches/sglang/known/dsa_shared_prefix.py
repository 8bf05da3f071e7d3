"""sglang.dsa-shared-prefix, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="sglang.dsa-shared-prefix",
    title="DeepSeek V3.2 ends in an assertion when prompts of a prefill share a long prefix (FP8 KV cache)",
    symptom="A shared prefix counts once per prompt, and a sum above the size of the KV cache is refused.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.5.4.post2,<0.5.7",),
    code=("sglang.srt.layers.attention.nsa.dequant_k_cache:dequantize_k_cache_paged",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        AnyOf(
            AllOf(Is("compute capability", 100, 103), Is("--kv-cache-dtype", "off", "auto", "fp8_e4m3")),
            AllOf(Is("compute capability", 90), Is("--kv-cache-dtype", "fp8_e4m3"), Since("0.5.6")),
        ),
        Not(Is("--disable-radix-cache", "on")),
        Unseen("whether prompts of one prefill, with their shared prefixes, are longer than the KV cache"),
    ),
    avoid="Set --disable-radix-cache, or --kv-cache-dtype bfloat16.",
)
