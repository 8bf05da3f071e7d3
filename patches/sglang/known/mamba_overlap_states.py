"""sglang.mamba-overlap-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.mamba-overlap-states",
    title="Qwen3-Next caches and frees states that the step in flight still writes (overlap)",
    symptom="A prompt with a cached prefix begins a token ahead, or with half a chunk; others, with a state of nobody.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.3.post2,<0.5.6.post1",),
    code=(
        "sglang.srt.mem_cache.mamba_radix_cache:MambaRadixCache.cache_finished_req",
        "sglang.srt.server_args:ServerArgs._handle_model_specific_adjustments",
    ),
    upstream=Upstream("sgl-project/sglang", pull=13057),
    hits=AllOf(
        AnyOf(
            AllOf(Is("architecture", "Qwen3NextForCausalLM"), Not(Since("0.5.5.post3"))),
            Is("architecture", "JetNemotronForCausalLM", "JetVLMForConditionalGeneration"),
        ),
        Is("decode beside kept states", ON),
        Is("--disable-overlap-schedule", "off"),
        Not(Is("speculative decoding", ON)),
    ),
    avoid="Set --disable-overlap-schedule, as 0.5.5.post3 does for Qwen3-Next.",
)
