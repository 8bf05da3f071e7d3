"""sglang.nemotron-overlap-states, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.nemotron-overlap-states",
    title="Nemotron-H caches and frees states that the step in flight still writes (overlap)",
    symptom="With Nemotron-H, a prompt behind a cached prefix begins a token ahead, or with a state of nobody.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.6.post1,<0.5.7",),
    code=(
        "sglang.srt.mem_cache.mamba_radix_cache:MambaRadixCache.cache_finished_req",
        "sglang.srt.server_args:ServerArgs._handle_model_specific_adjustments",
    ),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "NemotronHForCausalLM", "NemotronH_Nano_VL_V2"),
        Is("kept recurrent states", ON),
        Is("steps overlap", ON),
        Is("speculative decoding", OFF),
    ),
    avoid="Set --disable-overlap-schedule, as 0.5.7 does for Nemotron-H.",
)
