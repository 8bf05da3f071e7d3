"""vllm.fa3-dcp-graph, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, GRAPHS, PARALLEL

from . import wrap

_FLASH = "vllm.v1.attention.backends.flash_attn"
_BUILDER, _IMPL = f"{_FLASH}:FlashAttentionMetadataBuilder", f"{_FLASH}:FlashAttentionImpl"
_LOCAL = "vllm.v1.attention.backends.utils:get_dcp_local_seq_lens"
_COMBINING = [
    f"{module}:{name}"
    for module in ("vllm.attention.ops.common", "vllm.v1.attention.ops.common")
    for name in ("cp_lse_ag_out_rs", "_cp_lse_common", "correct_attn_out")
]

FIX = Fix(
    id="vllm.fa3-dcp-graph",
    title="Answers ignore their prompt with decode context parallelism on FlashAttention",
    symptom=(
        "With --decode-context-parallel-size above 1 and FlashAttention, answers ignore their prompt or are garbage. With "
        "--enforce-eager they are right. Up to 0.16.0 a server on Hopper may also die of `scheduler_metadata must have shape "
        "(metadata_size)`."
    ),
    symptoms=(PARALLEL, GRAPHS, DIES),
    cause=(
        "How much of a request's context lies on this rank is computed for every step, into new memory. A full CUDA graph "
        "reads it where it lay at capture, when there was no context. Up to 0.16.0 the kernel is also left to choose its "
        "number of splits, while its scheduler's metadata was made for as many as graphs may need: where it chooses one, the "
        "metadata's length is wrong. (Up to 0.12.0 vLLM turns full graphs off under DCP.)"
    ),
    correction="The lengths are copied into one buffer per builder, and the kernel is told the number of splits.",
    upstream=Upstream("vllm-project/vllm", pull=36070, issue=35057),
    hardware="two NVIDIA GPUs or more (FLASH_ATTN, --decode-context-parallel-size above 1, full CUDA graphs, the default)",
    default=True,
    default_reason="silent wrong output; later releases copy the same lengths and pass the same number",
    targets=(
        Target(wrap.build, needed=wrap.has_full_graphs, paths=(f"{_BUILDER}.build",)),
        Target(wrap.forward_with_dcp, needed=wrap.says_no_splits, paths=(f"{_IMPL}._forward_with_dcp",)),
    ),
    # What makes the buffers, counts a rank's share and combines the ranks. VllmConfig is none of them: where it turns full
    # graphs off under DCP, nothing is corrected
    witnesses=(
        f"{_BUILDER}.__init__",
        f"{_IMPL}.__init__",
        f"{_FLASH}:FlashAttentionMetadata",
        _LOCAL,
        "vllm.model_executor.layers.batch_invariant:vllm_is_batch_invariant",
        *_COMBINING,
    ),
    cost=(
        "Two small launches per step and KV cache group; up to 0.16.0 a few µs of host time per layer outside graphs. A step "
        "counts as corrected that has no more tokens than the largest graph, also where none is replayed for it."
    ),
    avoid=(
        "Start with `--compilation-config.cudagraph_mode PIECEWISE`: attention runs outside graphs, with each step's "
        "own lengths; decode gets slower."
    ),
    expect=(
        "On one replica, ask about something that stands early in a long prompt: stock the answer does not know it, fixed it "
        "is that of --enforce-eager."
    ),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("attention backend", "FLASH_ATTN"),
        Above("decode context parallel size", 1),
        Is("full CUDA graphs", ON),
    ),
)
