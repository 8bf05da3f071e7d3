"""vllm.mixed-precision-stale-bits, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is, Not
from attnfix.compat.fix import Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import GARBAGE, KV_SCALES, LONG_PROMPT

from . import wrap

_V1, _V2 = "vllm.v1.worker.gpu_model_runner:GPUModelRunner", "vllm.v1.worker.gpu.model_runner:GPUModelRunner"
_WORKER, _INTERFACE, _CORE = "vllm.v1.worker.utils", "vllm.v1.kv_cache_interface", "vllm.v1.core"

FIX = Fix(
    id="vllm.mixed-precision-stale-bits",
    title="NaN with an FP8 KV cache and layers that keep their dtype",
    symptom=(
        "A model with sliding windows, an FP8 KV cache and `--kv-cache-dtype-skip-layers` answers with garbage or one repeated "
        "token. It begins with prompts longer than the window, or with uptime. No error."
    ),
    symptoms=(GARBAGE, KV_SCALES, LONG_PROMPT),
    cause=(
        "Layers of both formats share one pool of blocks. Windows free blocks, which an FP8 layer gets with the bits of "
        "bfloat16. Some of these bytes read as NaN. Attention multiplies what is behind a request's last token by zero, which "
        "leaves NaN. The engine clears new blocks for hybrid models alone."
    ),
    correction=(
        "Before a step, the blocks that requests get in it are cleared by the engine's own kernel, as 0.27.0 does; blocks of "
        "windows, too. Blocks with tokens of a cached prefix or a connector stay, even where they are filled in part. Pools "
        "with states, with several layers in one block or with other kinds of layers stay as they are, and so does the CPU. So "
        "does Model Runner V2 with a KV connector, which may copy a block away after its owner has changed."
    ),
    upstream=Upstream("vllm-project/vllm", pull=47574),
    hardware="any GPU (sliding windows, an FP8 KV cache and --kv-cache-dtype-skip-layers)",
    default_reason=(
        "an H200 gave 0.933 (0.871-1.000) times the tokens/s in 20 pairs, which does not decide; Triton compiles the kernel "
        "while requests wait"
    ),
    targets=(
        Target(wrap.clear_blocks, needed=wrap.blocks_to_clear, paths=(f"{_V1}._update_states",)),
        Target(wrap.clear_blocks, needed=wrap.blocks_to_clear, paths=(f"{_V2}.update_requests",)),
    ),
    independent=True,  # a worker imports the runner that it has
    # Which blocks are cleared, by whom, and which layers share them
    witnesses=(
        f"{_INTERFACE}:KVCacheConfig.needs_kv_cache_zeroing",
        f"{_INTERFACE}:KVCacheConfig.has_mixed_precision_kv_cache",
        f"{_WORKER}:KVBlockZeroer",
        f"{_WORKER}:_zero_kv_blocks_kernel",
        f"{_WORKER}:AttentionGroup",
        "vllm.v1.attention.backend:AttentionBackend.get_kv_cache_block_dim",
        f"{_CORE}.sched.output:NewRequestData",
        f"{_CORE}.sched.output:CachedRequestData",
    ),
    # Before, all layers of a cache have one format
    examined=(">=0.19.0",),
    cost=(
        "Some µs per step of a pool with several formats, and one launch in a step in which a request gets a block. "
        "Triton compiles the kernel in the first such step, and again for some numbers of blocks."
    ),
    worst_cost=WorstCost(0.933, 0.871, 1.0, "every prompt and answer gets blocks", "h200-vllm-0.23.0"),
    avoid="Leave `--kv-cache-dtype-skip-layers` out, or keep the whole cache in the model's dtype.",
    expect=(
        "On one replica that has served some hundred requests, answers to prompts longer than the window become those of a "
        "server that has just started."
    ),
    stays_out=AllOf(Is("model runner", "V2"), Is("KV connector", ON)),
    hits=AllOf(
        Is("layers of FP8 and others in the KV cache", ON),
        Is("sliding-window layers", ON),
        Is("hybrid KV cache manager", ON),
        Is("recurrent layers", OFF),
        Not(Is("attention backend", "TRITON_ATTN")),
    ),
)
