"""sglang.disagg-window-double-free, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE

BUG = KnownBug(
    id="sglang.disagg-window-double-free",
    title="A decode server with a drafter gives window slots of other requests back, and ends",
    symptom="After many requests the decode server ends in an assertion on its window pool; text may be wrong before.",
    symptoms=(DIES, GARBAGE),
    releases=(">=0.5.12,<0.5.12.post1",),
    code=("sglang.srt.mem_cache.swa_memory_pool:SWATokenToKVPoolAllocator.alloc_extend_swa_tail",),
    upstream=Upstream("sgl-project/sglang", pull=25805),
    harm=CRASH,
    hits=AllOf(
        Is("--disaggregation-mode", "decode"),
        Given("--speculative-algorithm"),
        AnyOf(
            Is("architecture", "DeepseekV4ForCausalLM"), AllOf(Is("sliding-window KV pool", "on"), Above("tokens of a page", 1))
        ),
        Unseen("whether a page comes back with the mapping of its last request"),
    ),
    avoid="Start the decode server without a drafter.",
)
