"""sglang.mixed-chunk-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH

from . import wrap

_BATCH = "sglang.srt.managers.schedule_batch:ScheduleBatch"
_REQ = "sglang.srt.managers.schedule_batch:Req"
_RESULTS = "sglang.srt.managers.scheduler_components.batch_result_processor:SchedulerBatchResultProcessor"
_FORMER_RESULTS = "sglang.srt.managers.scheduler_output_processor_mixin:SchedulerOutputProcessorMixin"
_POOL = "sglang.srt.mem_cache.memory_pool:HybridReqToTokenPool"

FIX = Fix(
    id="sglang.mixed-chunk-states",
    title="Hybrid models continue a cached prompt from a state of other text (--enable-mixed-chunk)",
    symptom=(
        "With `--enable-mixed-chunk`, hybrid models (Qwen3-Next, Qwen3.5, NemotronH) ignore a prompt or mix it with others "
        "in follow-up turns. The prompt was first computed beside requests that decoded. It stays wrong until its prefix "
        "leaves the cache. No error."
    ),
    symptoms=(CACHED_PREFIX, SHARED_BATCH),
    cause=(
        "A batch of prompts says which recurrent states its forward keeps for the radix cache. When requests that decode join "
        "the batch, merging drops that. The forward keeps none, and the cache gets a slot that nobody wrote."
    ),
    correction=(
        "The prompts' part is put back behind the merge, as in 0.5.23. Requests that decode keep no state in such a step. "
        "Where one crosses a track interval in it, 0.5.13-0.5.17 still claim one: with extra_buffer_lazy that stays, else "
        "sglang.mamba-track-boundary corrects it."
    ),
    upstream=Upstream("sgl-project/sglang", pull=39526, issue=39342),
    hardware="any GPU (hybrid models with --enable-mixed-chunk, the radix cache and extra_buffer, the default from 0.5.14 on)",
    default_reason="states that are written in mixed steps were not seen on a GPU, and tokens/s were not measured",
    targets=(
        Target(
            wrap.mix_with_running,
            needed=wrap.keeps_states,
            paths=(f"{_BATCH}.mix_with_running",),
        ),
    ),
    # Makers and losers of the fields, the claim of a state, the slot that the cache gets, and the calls of mixing
    witnesses=(
        f"{_BATCH}.merge_batch",
        f"{_BATCH}.prepare_for_extend",
        f"{_BATCH}._mamba_radix_cache_v2_req_prepare_for_extend",
        f"{_BATCH}.copy",
        f"{_RESULTS}.process_batch_result_prefill",
        f"{_FORMER_RESULTS}.process_batch_result_prefill",
        "sglang.srt.mem_cache.mamba_radix_cache:MambaRadixCache.cache_unfinished_req",
        f"{_POOL}.get_mamba_ping_pong_other_idx",
        f"{_POOL}.get_mamba_ping_pong_keep_idx",
        f"{_POOL}.donate_mamba_ping_pong_slot",
        f"{_BATCH}.batch_size",
        f"{_REQ}.set_extend_input_len",
        f"{_REQ}.set_extend_range",
        f"{_REQ}._refresh_fill_ids",
        f"{_REQ}.refresh_fill_ids",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.is_none",
    ),
    cost=(
        "Not measured on a GPU: six small launches for each batch of prompts that others join. Its states are written, as in "
        "one that none joins."
    ),
    avoid="Leave `--enable-mixed-chunk` out: prompts and decodes alternate; decodes wait while a prompt is computed.",
    expect=(
        "On a busy replica with `--enable-mixed-chunk`, continue conversations at temperature 0: stock, some answers differ "
        "from those with `--disable-radix-cache`; fixed, they do not. Other bugs of the hybrid cache stay."
    ),
    hits=AllOf(Is("recurrent layers", ON), Is("tracked Mamba states", ON), Is("mixed chunks", ON)),
)
