"""sglang.mamba-pool-full, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES

from . import wrap

_CACHE = "sglang.srt.mem_cache"

FIX = Fix(
    id="sglang.mamba-pool-full",
    title="Qwen3-Next ends as soon as cached states fill their pool: none is evicted for a new request",
    symptom="""After some hundred requests the scheduler ends in "'NoneType' object is not subscriptable".""",
    symptoms=(DIES,),
    cause=(
        "Each request that has ended leaves states in the radix cache. A new prompt takes a free state, and none of the cached "
        "ones is evicted where no state is free."
    ),
    correction="As many cached states are evicted as the prompts of a batch lack. Upstream does so from 0.5.4 on.",
    upstream=Upstream("sgl-project/sglang", pull=11616),
    hardware="any GPU (Qwen3-Next)",
    default=True,
    default_reason="a crash; upstream has released the same",
    targets=(
        Target(
            wrap.prepare_for_extend,
            needed=wrap.missing,
            paths=("sglang.srt.managers.schedule_batch:ScheduleBatch.prepare_for_extend",),
        ),
    ),
    # Takers of a state, and its pool
    witnesses=(
        f"{_CACHE}.common:alloc_for_extend",
        f"{_CACHE}.common:alloc_req_slots",
        f"{_CACHE}.memory_pool:HybridReqToTokenPool.alloc",
        f"{_CACHE}.memory_pool:MambaPool.alloc",
        f"{_CACHE}.mamba_radix_cache:MambaRadixCache.evict_mamba",
    ),
    ranks_alike=True,  # which states are free, and with it what is evicted and what runs
    harm=CRASH,
    hits=AllOf(Is("architecture", "Qwen3NextForCausalLM"), Is("decode beside kept states", ON)),
    cost="A look at each request of a batch of prompts; an eviction, which the engine does in the same way elsewhere.",
    avoid="Set --disable-radix-cache.",
    expect="On one replica with a small `--max-mamba-cache-size`, send different prompts: stock ends, fixed answers all.",
)
