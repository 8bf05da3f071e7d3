"""sglang.mamba-snapshot-race, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT

from . import wrap

_CACHE, _SCHEDULER = "sglang.srt.mem_cache", "sglang.srt.managers.scheduler:Scheduler"
_PREFILL = "sglang.srt.disaggregation.prefill:SchedulerDisaggregationPrefillMixin"
_REQUESTS = "sglang.srt.managers.schedule_batch"

FIX = Fix(
    id="sglang.mamba-snapshot-race",
    title="Hybrid models cache the state of a prompt before it is complete (extra_buffer, overlap)",
    symptom="Answers on a prefix hit differ from those without one, now and then, after prompts that came in chunks.",
    symptoms=(CACHED_PREFIX, LONG_PROMPT),
    cause=(
        "A chunk's state is copied for the radix cache while the next batch is chosen. The GPU may still compute the chunk on "
        "another stream: what is copied is the state of an earlier chunk or request, or half of each."
    ),
    correction="The scheduler's stream waits for the chunk on the device before the copy. Other steps are left alone.",
    upstream=Upstream("sgl-project/sglang", pull=24954, issue=24221),
    hardware="NVIDIA GPUs (hybrid models with --mamba-scheduler-strategy extra_buffer)",
    targets=(
        Target(wrap.behind_the_chunk, needed=wrap.copies, paths=(f"{_SCHEDULER}.get_next_batch_to_run",)),
        Target(wrap.behind_the_chunk, needed=wrap.copies, paths=(f"{_PREFILL}.process_prefill_chunk",)),
    ),
    # Who copies states, who launches chunks on which stream, and who says up to where a state is known
    witnesses=(
        f"{_SCHEDULER}.stash_chunked_request",
        f"{_SCHEDULER}.run_batch",
        f"{_SCHEDULER}.init_overlap",
        f"{_SCHEDULER}.event_loop_overlap",
        f"{_PREFILL}.event_loop_overlap_disagg_prefill",
        f"{_CACHE}.mamba_radix_cache:MambaRadixCache.cache_unfinished_req",
        f"{_CACHE}.common:maybe_cache_unfinished_req",
        f"{_CACHE}.memory_pool:MambaPool",
        f"{_CACHE}.memory_pool:HybridReqToTokenPool",
        f"{_REQUESTS}:ScheduleBatch.prepare_for_extend",
        f"{_REQUESTS}:ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend",
    ),
    default=True,
    default_reason="silent wrong output; upstream has corrected the same race, and a chunk alone is waited for",
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("tracked Mamba states", ON),
        Is("kept recurrent states", ON),
        AnyOf(Is("speculative decoding", OFF), Is("spec v2", ON)),
        Is("steps overlap", ON),
        Is("prompts in chunks", ON),
    ),
    cost=(
        "Between two chunks of one prompt, the GPU waits for the scheduler, as without overlap: a few milliseconds for each "
        "chunk. A look at a few attributes for each step."
    ),
    avoid="Leave --mamba-scheduler-strategy out, or set --disable-overlap-schedule.",
    expect=(
        "On one replica, ask prompts of several chunks, then others that begin as they do: answers become those of a server "
        "without a radix cache, to rounding."
    ),
)
