"""sglang.mamba-track-boundary, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH

from . import wrap

_RESULTS = "sglang.srt.managers.scheduler_components.batch_result_processor:SchedulerBatchResultProcessor"
_BATCH = "sglang.srt.managers.schedule_batch"
_POOL = "sglang.srt.mem_cache.memory_pool:HybridReqToTokenPool"

FIX = Fix(
    id="sglang.mamba-track-boundary",
    title="Hybrid models miss a part of the conversation in follow-up turns",
    symptom=(
        "Hybrid models (Qwen3-Next, Qwen3.5, NemotronH) answer some follow-up turns as if they had missed a part of the "
        "conversation, often on a busy server. The same prompt is wrong again until its prefix leaves the cache. No error."
    ),
    symptoms=(CACHED_PREFIX, SHARED_BATCH),
    cause=(
        "While a request decodes, its recurrent state is saved at every track interval, in one of two buffers. The next buffer "
        "is chosen from a length that the overlap scheduler has already moved to the next step. When a prefill comes right "
        "after such a step, the boundary counts twice: the choice changes back, and the radix cache gets the older buffer as "
        "the state of the newer position."
    ),
    correction="The buffer is chosen from the tokens of the step that is processed, as in earlier and in later releases.",
    upstream=Upstream("sgl-project/sglang", pull=31369),
    hardware=(
        "any GPU (hybrid models with the overlap scheduler, the radix cache and extra_buffer, which is the default from 0.5.14 "
        "on; no speculative decoding)"
    ),
    default=True,
    default_reason="silent wrong output; fixed upstream in the same way",
    targets=(
        Target(
            wrap.check_track_boundary,
            needed=wrap.asked_a_step_ahead,
            paths=(f"{_RESULTS}._mamba_check_track_boundary",),
        ),
    ),
    # What acts on the answer, what is asked ahead of it, and which state a step writes where
    witnesses=(
        f"{_RESULTS}._mamba_prefix_cache_update",
        f"{_RESULTS}._handle_finish_state_updated_req",
        f"{_RESULTS}.process_batch_result_decode",
        f"{_RESULTS}.mamba_lazy_post_decode_at_boundary",
        f"{_BATCH}:ScheduleBatch.prepare_for_decode",
        f"{_BATCH}:ScheduleBatch.mamba_lazy_prealloc_at_boundary",
        f"{_BATCH}:ScheduleBatch.copy",
        f"{_BATCH}:ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend",
        f"{_BATCH}:set_mamba_track_indices_from_reqs",
        f"{_BATCH}:Req.seqlen",
        f"{_POOL}.get_mamba_ping_pong_other_idx",
        f"{_POOL}.get_mamba_ping_pong_keep_idx",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.is_none",
        "sglang.srt.server_args:get_global_server_args",
        "sglang.srt.runtime_context:get_server_args",
        "sglang.srt.runtime_context:get_exec",
    ),
    cost=(
        "A look at host numbers for each request of a decode step: 0.6 microseconds as timed, 1.1 at a boundary. A state that "
        "a request reaches with its very last token is no longer kept: what was cached before it stays. A boundary counts as "
        "two corrections, also where no prefill comes between and stock would have ended right."
    ),
    avoid=(
        "Set `--mamba-track-interval` above the context length, a multiple of the page size: no boundary comes in "
        "decode; answers are not cached, prompts are."
    ),
    expect=(
        "On a busy replica, continue conversations at temperature 0: stock, a few answers differ from those with "
        "--disable-radix-cache; fixed, they do not. Other differences of the hybrid cache in these releases are other bugs."
    ),
    hits=AllOf(Is("recurrent layers", ON), Is("states kept by turns", ON), Is("speculative decoding", OFF)),
    ranks_alike=True,
)
