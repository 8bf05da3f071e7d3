"""vllm.mamba-chunk-blocks, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX

from . import wrap

_CORE = "vllm.v1.core"
_SCHEDULER = f"{_CORE}.sched.scheduler:Scheduler"
_MANAGERS = f"{_CORE}.single_type_kv_cache_manager"
_CACHE = "vllm.v1.kv_cache_interface"

FIX = Fix(
    id="vllm.mamba-chunk-blocks",
    title="Hybrid models answer wrongly behind a cached prefix when layers have blocks of two sizes",
    symptom=(
        "Chunks of a prompt end at blocks of another layer: a cached state has seen other tokens than its prefix. No error."
    ),
    symptoms=(CACHED_PREFIX,),
    cause=(
        "A recurrent state is cached at the end of a block of states, if a chunk of the prompt ends there. The scheduler cuts "
        "prompts by cache_config.block_size, which the engine core lowers at startup to the shortest block of all layers. The "
        "cache manager counts in blocks of states, and takes the last state within one for that of its end."
    ),
    correction=(
        "Where the sizes differ, the scheduler cuts prompts by blocks of states. On Model Runner V2, 0.28.0 needs more: a "
        "request there looks for its state in another column."
    ),
    upstream=Upstream("vllm-project/vllm", pull=54076, issue=50630, report="vllm-mamba-chunk-blocks"),
    hardware="any GPU (hybrid models with cached prefixes, and layers or drafters with a window)",
    targets=(
        Target(
            wrap.mamba_block_aligned_split,
            needed=wrap.counts_in_other_blocks,
            paths=(f"{_SCHEDULER}._mamba_block_aligned_split",),
        ),
    ),
    # The check of two sizes, states with their tokens, and ends of a prompt's chunks
    witnesses=(
        f"{_CORE}.kv_cache_utils:resolve_kv_cache_block_sizes",
        f"{_CORE}.kv_cache_coordinator:HybridKVCacheCoordinator.__init__",
        f"{_MANAGERS}:MambaManager.allocate_new_blocks",
        f"{_MANAGERS}:MambaManager.cache_blocks",
        f"{_MANAGERS}:MambaManager.find_longest_cache_hit",
        f"{_CACHE}:get_mamba_prefill_checkpoint_position",
        f"{_CACHE}:is_mamba_prefill_checkpoint_valid",
        "vllm.v1.request:Request.num_tokens",
    ),
    cost=(
        "Some µs of host time for each chunk of a prompt, and less than one for each request that decodes. Chunks are up to a "
        "block of states shorter."
    ),
    avoid="Set `--no-enable-prefix-caching`, or take FLASH_ATTN without `--kv-cache-dtype-skip-layers`.",
    expect=(
        "On one replica with a small --max-num-batched-tokens, ask two long prompts with a common begin, one after the other, "
        "and the second once more on a fresh server. Fixed, both of its answers agree."
    ),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cache mode of states", "align"),
        AnyOf(
            AllOf(Is("attention backend", "FLASHINFER"), Is("sliding-window layers", ON)),
            Is("blocks that the scheduler counts in", "shorter"),
        ),
    ),
)
