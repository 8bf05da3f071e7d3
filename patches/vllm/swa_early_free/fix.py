"""vllm.swa-early-free, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

_CORE = "vllm.v1.core"
_MANAGERS = f"{_CORE}.single_type_kv_cache_manager"
_SCHEDULER = f"{_CORE}.sched.scheduler:Scheduler"

FIX = Fix(
    id="vllm.swa-early-free",
    title="Windows read keys of another request: blocks are freed before drafts are verified (async scheduling)",
    symptom=(
        "Under load, drafts change the text of a model with a sliding window now and then, once the KV cache is full. Alone, "
        "the same request is right. No error."
    ),
    symptoms=(SHARED_BATCH, SPECULATION, GARBAGE),
    cause=(
        "With asynchronous scheduling, a request counts the drafts of the step in flight as computed. Blocks behind its window "
        "are freed by that count. If drafts are refused, the next steps begin further back and read a freed block. Another "
        "request, or the same one, has been given it."
    ),
    correction=(
        "Windows and chunks of local attention free blocks by the count without the tokens of decodes in flight, as in 0.26.0. "
        "That release also keeps blocks of prompts in flight, of recurrent states, and of requests that end for a KV "
        "connector. Here they stay as they are, and so does a request that alone has all blocks in use."
    ),
    upstream=Upstream("vllm-project/vllm", pull=47728),
    hardware="any GPU (models with a sliding window or chunked local attention; speculative decoding, asynchronous scheduling)",
    default=True,
    default_reason=(
        "silent wrong output; 0.26.0 frees by the same count. Blocks are kept for one step longer, and no kernel or graph "
        "changes"
    ),
    targets=(
        Target(
            wrap.allocate_slots, needed=wrap.frees_early, paths=(f"{_CORE}.kv_cache_manager:KVCacheManager.allocate_slots",)
        ),
    ),
    # The count by which blocks are freed, and that of the tokens in flight
    witnesses=(
        f"{_CORE}.kv_cache_coordinator:KVCacheCoordinator.remove_skipped_blocks",
        f"{_MANAGERS}:SingleTypeKVCacheManager.remove_skipped_blocks",
        f"{_MANAGERS}:SingleTypeKVCacheManager.get_num_blocks_to_allocate",
        f"{_MANAGERS}:SlidingWindowManager.get_num_skipped_tokens",
        f"{_MANAGERS}:ChunkedLocalAttentionManager.get_num_skipped_tokens",
        f"{_MANAGERS}:RSWAManager.remove_skipped_blocks",
        f"{_CORE}.sched.async_scheduler:AsyncScheduler._update_after_schedule",
        f"{_SCHEDULER}._update_after_schedule",
        f"{_SCHEDULER}._preempt_request",
        f"{_CORE}.block_pool:BlockPool.get_num_free_blocks",
        f"{_SCHEDULER}.update_from_output",
    ),
    # 0.20.0 and 0.20.1 end when a window needs a block and the cache is full: a block that is kept would end them earlier
    examined=(">=0.10.0,<0.20.0", ">=0.20.2"),
    cost=(
        "About a microsecond for each decode of a step with drafts and each group of layers. A window holds a block or two "
        "more for one step, a chunk of local attention all that it has."
    ),
    avoid=("Start with `--no-async-scheduling`, or where some layers see all tokens with `--disable-hybrid-kv-cache-manager`."),
    expect=(
        "On one replica with drafts, fill the KV cache with long answers of a model with a sliding window. Fixed, each answer "
        "is the one that the request gets alone, but for sums in another order."
    ),
    hits=AllOf(
        Is("async scheduling", ON),
        Is("speculative decoding", ON),
        Is("blocks that windows free", ON),
    ),
)
