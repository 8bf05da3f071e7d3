"""sglang.mamba-flush, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="sglang.mamba-flush",
    title="Qwen3-Next and Jet-Nemotron continue old conversations in new ones once the cache was flushed",
    symptom="After /flush_cache, or an update of weights, prompts start from recurrent states that other prompts left.",
    symptoms=(GARBAGE,),
    releases=(">=0.5.3.post2,<0.5.5.post3",),
    code=("sglang.srt.mem_cache.memory_pool:MambaPool.clear",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM", "JetNemotronForCausalLM"),
        Is("--disable-radix-cache", "off"),
        Not(Is("--disaggregation-mode", "decode")),
        Unseen("whether the cache is ever flushed"),
    ),
    avoid="Set --disable-radix-cache.",
)
