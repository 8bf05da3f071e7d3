"""vllm.dcp-captured-context, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import Fix, Override, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, GRAPHS, PARALLEL

from . import wrap

_FLASH, _CP = "vllm.v1.attention.backends.flash_attn", "vllm.v1.worker.cp_utils"
_BUILDER, _IMPL = f"{_FLASH}:FlashAttentionMetadataBuilder", f"{_FLASH}:FlashAttentionImpl"
_GPU = "vllm.v1.worker.gpu"

FIX = Fix(
    id="vllm.dcp-captured-context",
    title="Answers forget their prompt with decode context parallelism on FlashAttention (Model Runner V2, CUDA graphs)",
    symptom=(
        "With --decode-context-parallel-size above 1 and FLASH_ATTN, an answer's first token is right. Every later token "
        "ignores the prompt and the answer so far: repetition or garbage. With --enforce-eager answers are right. No error."
    ),
    symptoms=(PARALLEL, GRAPHS, GARBAGE),
    cause=(
        "Where no request of a batch has a context, the builder of metadata leaves attention to it out. Model Runner V2 "
        "captures its graphs with such a batch, so their replays attend to new tokens alone. The former runner captures with a "
        "context. Its graph of one token has none with cudagraph_mode FULL, where decode has no graphs of its own."
    ),
    correction=(
        "At a capture the builder is told of a context, as in 0.33.0: the graph attends to the context of each replay. Where a "
        "step has none, the builder also fills the schedule that a graph reads; the metadata of the step are stock's."
    ),
    upstream=Upstream("vllm-project/vllm", report="vllm-dcp-captured-context"),
    hardware="two NVIDIA GPUs or more (FLASH_ATTN, --decode-context-parallel-size above 1, full CUDA graphs, the default)",
    default_reason=(
        "neither the corrected graphs nor their tokens/s were seen on GPUs. On FlashAttention 2, rows without keys, as of a "
        "prompt that is as long as a verification, may become wrong"
    ),
    targets=(
        Override(
            wrap.build_for_cudagraph_capture,
            needed=wrap.without_context,
            paths=(f"{_BUILDER}.build_for_cudagraph_capture",),
            of=("vllm.v1.attention.backend:AttentionMetadataBuilder.build_for_cudagraph_capture",),
        ),
        Target(wrap.build, needed=wrap.may_replay_without_context, paths=(f"{_BUILDER}.build",)),
    ),
    # The maker of a capture's batch, its way to the builder, and the readers of the builder's decision
    witnesses=(
        f"{_BUILDER}.__init__",
        f"{_IMPL}._forward_with_dcp",
        f"{_FLASH}:FlashAttentionMetadata",
        f"{_CP}:should_skip_dcp_context_attention",
        f"{_CP}:split_dcp_context_queries",
        f"{_GPU}.cudagraph_utils:prepare_inputs_to_capture",
        f"{_GPU}.cudagraph_utils:set_dcp_capture_context",
        f"{_GPU}.input_batch:InputBatch.make_dummy",
        f"{_GPU}.attn_utils:build_attn_metadata",
        f"{_GPU}.model_states.default:DefaultModelState.prepare_attn",
    ),
    cost=(
        "Graphs hold attention to the context, with its exchange between the ranks, as they should. Its workspace is made at "
        "the first capture. A step of new prompts alone that is no longer than the largest graph builds its metadata twice."
    ),
    avoid=(
        "Start with `VLLM_USE_V2_MODEL_RUNNER=0`, and not with cudagraph_mode FULL: the former runner captures its decode "
        "graphs with a context. Where a model needs Model Runner V2, start with `--enforce-eager`; decode gets slower."
    ),
    expect=(
        "On one replica, ask about something that stands in the prompt: stock only the first token knows it, fixed the answer "
        "is that of --enforce-eager."
    ),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("attention backend", "FLASH_ATTN"),
        Above("decode context parallel size", 1),
        Is("full CUDA graphs", ON),
        Is("model runner", "V2"),
    ),
    ranks_alike=True,
)
