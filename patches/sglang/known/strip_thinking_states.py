"""sglang.strip-thinking-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, GARBAGE

_UNIFIED = "sglang.srt.mem_cache.unified_cache"

BUG = KnownBug(
    id="sglang.strip-thinking-states",
    title="Hybrid models continue a conversation from a state of later text (--strip-thinking-cache)",
    symptom="After a long thought, the next turn starts from the state behind the thought. To 0.5.15.post1 the scheduler dies.",
    symptoms=(CACHED_PREFIX, DIES, GARBAGE),
    releases=(">=0.5.11,<0.5.22",),
    code=(
        "sglang.srt.mem_cache.mamba_radix_cache:MambaRadixCache.cache_finished_req",
        f"{_UNIFIED}_components.mamba_component:MambaComponent.prepare_for_caching_req",
        f"{_UNIFIED}.components.mamba_component:MambaComponent.prepare_for_caching_req",
        f"{_UNIFIED}.components.mamba:MambaComponent.prepare_for_caching_req",
    ),
    upstream=Upstream("sgl-project/sglang", pull=24380),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("tracked Mamba states", ON),
        Given("--strip-thinking-cache"),
        Given("--reasoning-parser"),
    ),
    avoid="Leave --strip-thinking-cache out.",
)
