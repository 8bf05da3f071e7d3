"""sglang.draft-row-spill, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CONTEXT_LIMIT, SHARED_BATCH, SPECULATION

from . import wrap

_SIZING = "sglang.srt.mem_cache.allocation_sizing"
_COMMON = "sglang.srt.mem_cache.common"
_WIDTH, _RESERVE, _LEN = "get_req_to_token_extra_context_len", "get_alloc_reserve_per_decode", "get_alloc_len_per_decode"
_KERNELS = ("sglang.srt.speculative.triton_ops.cache_locs", "sglang.srt.mem_cache.allocation")

FIX = Fix(
    id="sglang.draft-row-spill",
    title="A request near the context length changes another request's answer (spec v2)",
    symptom=(
        "A request that comes near the context length changes another request's answer, which goes on with KV of the first "
        "one. It happens with spec v2 and trees (--speculative-eagle-topk above 1) or more than 8 draft tokens. N-gram drafts "
        "have more by default. No error."
    ),
    symptoms=(CONTEXT_LIMIT, SHARED_BATCH, SPECULATION),
    cause=(
        "Each decode step gives a request the slots of two steps ahead, as the overlap scheduler knows its length a step late. "
        "Two steps are 2 * max(steps * topk, draft tokens); behind the context length its row in `req_to_token` has room for 4 "
        "and the draft tokens. The kernel that writes the slots knows no end of a row: what does not fit replaces the first "
        "slots of the next request's row."
    ),
    correction=(
        "Rows get as wide as what a request near the context length is given, except with --enable-unified-memory. From 0.5.16 "
        "on upstream makes them so where a page has more than one slot; by default it has one."
    ),
    upstream=Upstream("sgl-project/sglang", pull=26972, report="sglang-draft-row-spill"),
    hardware="any GPU",
    targets=(Target(wrap.extra_context_len, paths=(f"{_SIZING}:{_WIDTH}", f"{_COMMON}:{_WIDTH}")),),
    # What says how many slots a step gives, gives them, and writes them
    witnesses=(
        "sglang.srt.runtime_context:get_schedule",
        *(f"{module}:{name}" for module in (_SIZING, _COMMON) for name in (_RESERVE, _LEN)),
        "sglang.srt.speculative.eagle_info_v2:EagleDraftInputV2Mixin.prepare_for_decode",
        "sglang.srt.speculative.eagle_utils:eagle_prepare_for_decode",
        f"{_SIZING}:page_aligned_decode_alloc_lens",
        f"{_SIZING}:get_alloc_page_size",
        "sglang.srt.runtime_context:get_spec",
        "sglang.srt.runtime_context:max_speculative_num_draft_tokens",
        "sglang.srt.server_args:ServerArgs.max_speculative_num_draft_tokens",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.from_string",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.is_uno",
        "sglang.srt.mem_cache.allocation:alloc_for_spec_decode",
        *(f"{module}:assign_req_to_token_pool" for module in _KERNELS),
    ),
    examined=(">=0.5.13",),
    remove_when="a release of sglang is served whose rows are wide enough: attnfix then sees it and does nothing",
    cost="GPU memory, once at start: 4 bytes for each slot by which a row grows, of each request. No time per step.",
    avoid=(
        "Set `--speculative-eagle-topk 1` and at most 7 `--speculative-num-steps` (n-gram: "
        "`--speculative-num-draft-tokens 8`): slots of two steps fit the row."
    ),
    expect=(
        "On one replica with EAGLE and topk above 1, run a request up to the context length beside others at temperature 0: "
        "these are answered as they are without it."
    ),
    hits=AllOf(
        AnyOf(Is("spec v2", ON), Is("speculative algorithm", "DFLASH", "DSPARK", "FROZEN_KV_MTP", "NGRAM")),
        Is("rows of slots", "too short"),
    ),
)
