"""sglang.mamba-retraction, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.mamba-retraction",
    title="Qwen3-Next ends as soon as it must take a running request back for want of KV memory",
    symptom="Under load the scheduler ends in a TypeError: cache_finished_req got an unexpected argument 'is_insert'.",
    symptoms=(DIES,),
    releases=(">=0.5.3.post2,<0.5.4.post3",),
    code=("sglang.srt.mem_cache.mamba_radix_cache:MambaRadixCache.cache_finished_req",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        Is("--disable-radix-cache", "off"),
        Not(Is("--disaggregation-mode", "prefill", "decode")),
        Unseen("whether the KV pool ever runs full"),
    ),
    avoid="Set --disable-radix-cache.",
)
