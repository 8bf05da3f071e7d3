"""vllm.packed-zeroing, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, GARBAGE, LONG_PROMPT, SHARED_BATCH

from . import wrap

_WORKER, _INTERFACE = "vllm.v1.worker.utils", "vllm.v1.kv_cache_interface"
_PLANNING, _V2 = "vllm.v1.core.kv_cache_utils", "vllm.v1.worker.gpu.attn_utils"

FIX = Fix(
    id="vllm.packed-zeroing",
    title="DeepSeek-V4 forgets keys: a new block zeroes the start of the next, which a request may own",
    symptom="Equal requests get different answers, and long prompts lose what is asked for, as the free blocks lie. No error.",
    symptoms=(GARBAGE, LONG_PROMPT, SHARED_BATCH, DIES),
    cause=(
        "All layers of a group lie within one block. The engine clears a new block once for each layer: from where the layer's "
        "part begins, as many bytes as the block has. So the start of the next block is lost, and behind the last one memory "
        "that is no cache."
    ),
    correction=(
        "While a server starts, the clearing is planned from where the block begins, so that it ends with the block. Pools in "
        "which each layer has memory of its own stay as they are."
    ),
    upstream=Upstream("vllm-project/vllm", pull=50276),
    hardware="any GPU (DeepSeek-V4; connectors with enable_cross_layers_blocks)",
    default=True,
    default_reason="silent wrong output; 0.28.0 keeps to the block that is cleared, too",
    targets=(
        Target(
            wrap.clear_whole_blocks,
            needed=wrap.lies_within_blocks,
            paths=(f"{_WORKER}:KVBlockZeroer.__init__",),
        ),
    ),
    # Which pools are cleared, where layers lie in a block, and what is cleared of it
    witnesses=(
        f"{_INTERFACE}:KVCacheConfig.needs_kv_cache_zeroing",
        f"{_INTERFACE}:KVCacheConfig.has_mixed_precision_kv_cache",
        f"{_PLANNING}:_get_kv_cache_config_packed",
        f"{_V2}:_reshape_attention_kv_cache",
        f"{_WORKER}:KVBlockZeroer.zero_block_ids",
        f"{_WORKER}:_zero_kv_blocks_kernel",
        "vllm.v1.attention.backend:AttentionBackend.get_kv_cache_block_dim",
        "vllm.utils.math_utils:largest_power_of_2_divisor",
    ),
    hits=AnyOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        AllOf(
            Is("layers of a connector in one block", ON),
            Is("layers of FP8 and others in the KV cache", ON),
            Is("sliding-window layers", ON),
            Is("hybrid KV cache manager", ON),
        ),
    ),
    cost="Some µs while a server starts. A step in which a request gets a block writes less than before.",
    avoid="Nothing within the release avoids it for DeepSeek-V4; take release 0.28.0.",
    expect="On one replica, equal requests to DeepSeek-V4 get equal answers at temperature 0, whichever blocks they get.",
)
