"""vllm.mamba-stale-checkpoint, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT

from . import wrap

_LAYERS = "vllm.model_executor.layers.mamba"
_CHECKPOINT = f"{_LAYERS}.checkpoint"
_MANAGER = "vllm.v1.core.single_type_kv_cache_manager:MambaManager"
_INTERFACE = "vllm.v1.kv_cache_interface"

FIX = Fix(
    id="vllm.mamba-stale-checkpoint",
    title="Garbage for long prompts with prefix caching and one draft (Mamba2 hybrids)",
    symptom=(
        "A Mamba2 hybrid (NemotronH) with prefix caching and one draft token answers long prompts with garbage. A chunk behind "
        "the first one has exactly two blocks of states. One request is enough. Beside layers with a sliding window, NaN may "
        "come from the second chunk of any such prompt. No error."
    ),
    symptoms=(LONG_PROMPT, GARBAGE),
    cause=(
        "A checkpoint is planned for every chunk, though the cache manager reserves a block for that of a prompt's last chunk "
        "alone. For the others, the request's row of blocks has the null block in the checkpoint's column, or one that was a "
        "draft's and has moved; with one draft it has become the running state's. The convolution's window there is "
        "overwritten."
    ),
    correction=(
        "On the GPU, the plan is left out where its block is the null block, or stands once more behind it in the request's "
        "row of blocks."
    ),
    upstream=Upstream("vllm-project/vllm", report="vllm-mamba-stale-checkpoint"),
    hardware=(
        "any GPU (prefix caching beside Mamba2 layers, or Gated DeltaNet with FlashInfer's prefill: one draft token, or layers "
        "with a sliding window)"
    ),
    default=True,
    default_reason="silent wrong output; proven with real kernels on an H100 (0.33.0)",
    targets=(
        Target(
            wrap.build,
            needed=wrap.keeps_checkpoints,
            paths=(f"{_CHECKPOINT}:MambaPrefillCheckpointBuilder.build",),
        ),
    ),
    # What is planned, what is reserved, and who stores
    witnesses=(
        f"{_CHECKPOINT}:compute_mamba_prefill_checkpoints",
        f"{_CHECKPOINT}:_gather_checkpoint_state_indices",
        f"{_CHECKPOINT}:MambaPrefillCheckpointMetadata",
        f"{_INTERFACE}:is_mamba_prefill_checkpoint_valid",
        f"{_INTERFACE}:get_mamba_prefill_checkpoint_position",
        "vllm.config.speculative:SpeculativeConfig.use_eagle_block_drop",
        "vllm.config.vllm:VllmConfig.num_hash_lookahead_tokens",
        "vllm.utils.torch_utils:async_tensor_h2d",
        f"{_MANAGER}._needs_internal_checkpoint",
        f"{_MANAGER}.get_num_blocks_to_allocate",
        f"{_MANAGER}.allocate_new_blocks",
        f"{_MANAGER}._relocate_speculative_block",
        f"{_LAYERS}.ops.ssd_checkpoint:store_prefill_checkpoint",
        f"{_LAYERS}.ops.ssd_checkpoint:_store_prefill_checkpoint_kernel",
        f"{_LAYERS}.mamba_mixer2:MambaMixer2.get_kv_cache_spec",
        "vllm.v1.attention.backends.mamba2_attn:Mamba2AttentionMetadataBuilder.build",
        "vllm.v1.attention.backends.mamba2_attn:Mamba2AttentionMetadataBuilder.update_block_table",
    ),
    remove_when="a release of vLLM is served that plans checkpoints where a block is reserved alone: attnfix sees it",
    cost="About ten small operations on the GPU in a step with a prompt that spans two blocks of states; none in decodes.",
    avoid=(
        "Start with `--prefix-cache-retention-interval None`: each chunk then reserves a block for its checkpoint; "
        "prefix caching stays."
    ),
    expect=(
        "On one replica, ask a prompt of more than four blocks of states with --max-num-batched-tokens of two blocks, and once "
        "more with one that holds all of it: fixed, both answers agree."
    ),
    hits=AllOf(
        Is("layers that store checkpoints", ON),
        Is("cached prefixes of a hybrid model", ON),
        Is("chunks that have a block for a checkpoint", "the last one"),
        AnyOf(Is("draft tokens of a step", "one"), Is("sliding-window layers", ON)),
    ),
)
