"""sglang.mamba-flush, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE

from . import wrap

_CACHE, _LINEAR = "sglang.srt.mem_cache", "sglang.srt.layers.attention"

FIX = Fix(
    id="sglang.mamba-flush",
    title="Qwen3-Next and Jet-Nemotron continue old conversations in new ones once the cache was flushed",
    symptom="After /flush_cache, or an update of weights, prompts start from recurrent states that other prompts left.",
    symptoms=(GARBAGE,),
    cause=(
        "A state is zeroed when its request or the radix cache gives it back. A flush gives back all states that the radix "
        "cache keeps, and zeroes none. A prompt begins with what its state holds."
    ),
    correction="A flush zeroes all states, if one of them is not free. Nothing else changes.",
    upstream=Upstream("sgl-project/sglang", pull=14209),
    hardware="any GPU (Qwen3-Next, Jet-Nemotron)",
    targets=(Target(wrap.clear, needed=wrap.keeps, paths=(f"{_CACHE}.memory_pool:MambaPool.clear",)),),
    # Keepers of states, the flush of the pool, and the first read of a state
    witnesses=(
        f"{_CACHE}.memory_pool:MambaPool",
        f"{_CACHE}.memory_pool:HybridReqToTokenPool",
        f"{_CACHE}.mamba_radix_cache:MambaRadixCache",
    ),
    default=True,
    default_reason="upstream zeroes the states in the same place from 0.5.5.post3 on",
    hits=AllOf(Is("architecture", "Qwen3NextForCausalLM", "JetNemotronForCausalLM"), Is("kept recurrent states", ON)),
    cost="A flush, which waits until no request is there, writes the pool of states once: milliseconds.",
    avoid="Set --disable-radix-cache.",
    expect=(
        "On one replica, send a prompt, /flush_cache, and another prompt: stock, its answer differs from that of a fresh "
        "server. One correction is counted for each flush."
    ),
)
