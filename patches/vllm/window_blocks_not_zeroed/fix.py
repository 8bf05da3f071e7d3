"""vllm.window-blocks-not-zeroed, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SPECULATION

from . import wrap

_V1, _WORKER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner", "vllm.v1.worker.utils"
_INTERFACE, _CORE = "vllm.v1.kv_cache_interface", "vllm.v1.core"

FIX = Fix(
    id="vllm.window-blocks-not-zeroed",
    title="NaN in FP8 layers with a window of hybrid models, or fewer accepted drafts of such a drafter",
    symptom="Under load a window's layers read stale bits of states as FP8: acceptance collapses, or an answer is garbage.",
    symptoms=(GARBAGE, SPECULATION),
    cause=(
        "Layers with a window share one pool of blocks with recurrent states. A window's layers get a block with the bits of a "
        "state, some of which read as NaN. Attention multiplies what is behind a request's last token by zero, which leaves "
        "NaN. The engine clears the blocks of layers without a window alone."
    ),
    correction=(
        "Before a step, the blocks that a window's layers get in it are cleared by the engine's own kernel, as 0.28.0 does. "
        "Blocks with tokens of a cached prefix or a connector stay, even where they are filled in part. Pools stay as "
        "they are if they have one format, if the engine clears nothing of them, or if several layers lie in one block. So do "
        "the CPU and Model Runner V2."
    ),
    upstream=Upstream("vllm-project/vllm", pull=51749),
    hardware="any GPU (hybrid models with windows in the model or in its drafter, Model Runner V1)",
    default_reason="no GPU has measured its cost, and Triton may compile the kernel while requests wait",
    targets=(Target(wrap.clear_blocks, needed=wrap.blocks_to_clear, paths=(f"{_V1}._update_states",)),),
    # Which blocks are cleared, by whom, and which layers share them
    witnesses=(
        f"{_INTERFACE}:KVCacheConfig.needs_kv_cache_zeroing",
        f"{_INTERFACE}:MambaSpec",
        f"{_CORE}.single_type_kv_cache_manager:SingleTypeKVCacheManager.__init__",
        f"{_CORE}.single_type_kv_cache_manager:SingleTypeKVCacheManager.allocate_new_blocks",
        f"{_CORE}.single_type_kv_cache_manager:SingleTypeKVCacheManager.allocate_new_computed_blocks",
        f"{_WORKER}:KVBlockZeroer",
        f"{_WORKER}:_zero_kv_blocks_kernel",
        f"{_WORKER}:AttentionGroup",
        "vllm.v1.attention.backend:AttentionBackend.get_kv_cache_block_dim",
        f"{_CORE}.sched.output:NewRequestData",
        f"{_CORE}.sched.output:CachedRequestData",
    ),
    # Before, the engine clears no block
    examined=(">=0.17.1",),
    cost=(
        "Some µs per step of such a pool, and one launch in a step in which a window's layers get a block. Triton compiles the "
        "kernel in the first such step, and up to 0.26.0 again for some numbers of blocks."
    ),
    avoid="Start with `--kv-cache-dtype auto`, or with `--attention-backend TRITON_ATTN`.",
    expect="On one replica under load, acceptance and answers stay those of a server that has just started.",
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2"),
        Is("attention backend", "FLASHINFER"),
        Is("compute capability", 100, 103),
        Is("windows in the model or its drafter", ON),
        Is("model runner", "V1"),
    ),
)
