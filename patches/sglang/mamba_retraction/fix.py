"""sglang.mamba-retraction, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES

from . import wrap

_RESULTS = "sglang.srt.managers.scheduler_output_processor_mixin:SchedulerOutputProcessorMixin"
_REQUESTS, _CACHE = "sglang.srt.managers.schedule_batch", "sglang.srt.mem_cache"

FIX = Fix(
    id="sglang.mamba-retraction",
    title="Qwen3-Next ends as soon as it must take a running request back for want of KV memory",
    symptom="Under load the scheduler ends in a TypeError: cache_finished_req got an unexpected argument 'is_insert'.",
    symptoms=(DIES,),
    cause=(
        "A request that is taken back, or has to make way for one of a higher priority, is ended without being cached. The "
        "radix cache of recurrent states knows no such end. From 0.5.4 on the request keeps the number of its row, with which "
        "it may not match a prefix again."
    ),
    correction=(
        "The request's KV, row and state become free, and its prefix is unlocked. It forgets its row before it matches a "
        "prefix again. Requests that end by themselves are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", pull=12111),
    hardware="any GPU (Qwen3-Next, a full KV pool or preemption)",
    default=True,
    default_reason="a crash; upstream has released the same, and only requests that were taken back are touched",
    targets=(
        Target(wrap.release_req, needed=wrap.of_states, paths=(f"{_REQUESTS}:ScheduleBatch.release_req",)),
        Target(wrap.init_next_round_input, needed=wrap.keeps_its_row, paths=(f"{_REQUESTS}:Req.init_next_round_input",)),
    ),
    # The end of a request in the radix cache, its pools, its way back into the queue, and the KV of a token in flight
    witnesses=(
        f"{_CACHE}.mamba_radix_cache:MambaRadixCache.cache_finished_req",
        f"{_CACHE}.mamba_radix_cache:MambaRadixCache.match_prefix",
        f"{_CACHE}.memory_pool:HybridReqToTokenPool.free",
        f"{_CACHE}.memory_pool:MambaPool.free",
        f"{_REQUESTS}:ScheduleBatch.retract_decode",
        f"{_REQUESTS}:Req.reset_for_retract",
        f"{_RESULTS}.process_batch_result_prefill",
        f"{_RESULTS}.process_batch_result_decode",
    ),
    ranks_alike=True,  # which requests run follows from it
    harm=CRASH,
    hits=AllOf(Is("architecture", "Qwen3NextForCausalLM"), Is("decode beside kept states", ON)),
    cost="The step in flight is waited for when a request is taken back. A look at a name for each prompt that is matched.",
    avoid="Set --disable-radix-cache.",
    expect=(
        "On one replica with a small `--max-total-tokens`, send requests until the log says that some were retracted: stock "
        "ends, fixed answers all of them."
    ),
)
