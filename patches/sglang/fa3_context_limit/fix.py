"""sglang.fa3-context-limit, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, SPECULATION

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashattention_backend"
_BACKEND = f"{_MODULE}:FlashAttentionBackend"
_KERNELS = ("sglang.srt.layers.attention.triton_ops.metadata", "sglang.kernels.ops.attention.metadata")

FIX = Fix(
    id="sglang.fa3-context-limit",
    title="Crash near the context length with speculative decoding (fa3)",
    symptom=(
        "With speculative decoding on fa3, the server dies when a request comes near the context length. It reports an illegal "
        "memory access, or `AssertionError: FA3 draft-decode page_table`."
    ),
    symptoms=(DIES, CONTEXT_LIMIT, SPECULATION),
    cause=(
        "The page tables of CUDA graphs are as wide as the context length. Draft tokens count on top of it: the lengths of a "
        "verification or a draft step reach up to --speculative-num-draft-tokens beyond. The kernel reads as many pages as the "
        "length says: behind a row the next request's, behind the last row memory of others."
    ),
    correction=(
        "The tables get as wide as the rows of `req_to_token`, from which they are filled: the engine made these wide enough "
        "for draft tokens. Without drafts or CUDA graphs nothing changes. With more than 8 draft tokens and the overlap "
        "scheduler, the lengths of a request that has just ended may pass the rows, too: that is the matter of "
        "sglang.draft-row-spill."
    ),
    upstream=Upstream("sgl-project/sglang", pull=35985, issue=34239),
    hardware="NVIDIA Hopper with fa3, its default; fa4",
    default=True,
    default_reason="a crash, or wrong drafts; the engine's tables were seen right with FlashAttention 3 on an H200 (0.5.23)",
    targets=(Target(wrap.init, paths=(f"{_BACKEND}.__init__",)),),
    # What lays the tables out, what fills them and says the lengths, and what makes the draft model's backends
    witnesses=(
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}.init_forward_metadata_in_graph",
        f"{_BACKEND}._init_full_cg_decode_metadata",
        f"{_BACKEND}._bind_metadata_buffers",
        f"{_BACKEND}._apply_cuda_graph_metadata",
        f"{_BACKEND}._set_decode_page_metadata",
        f"{_BACKEND}.stage_draft_extend_metadata",
        f"{_BACKEND}._maybe_init_local_attn_builder",
        f"{_MODULE}:_should_disable_scheduler_metadata_precompute",
        f"{_MODULE}:FlashAttentionMultiStepBackend",
        *(f"{module}:normal_decode_set_metadata" for module in (_MODULE, *_KERNELS)),
        "sglang.srt.layers.attention.unified_mem_hooks:unified_mla_hooks",
        "sglang.srt.layers.attention.kv_shard_hooks:get_kv_shard_pool",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.from_string",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.is_dflash",
        "sglang.srt.utils.common:get_device_capability",
        "sglang.srt.configs.model_config:ModelConfig.get_num_kv_heads",
        "sglang.srt.runtime_context:ParallelContext.__getattr__",
        "sglang.srt.runtime_context:_install_parallel_properties",
        "sglang.srt.runtime_context:get_exec",
        "sglang.srt.runtime_context:get_model",
        "sglang.srt.runtime_context:get_parallel",
        "sglang.srt.runtime_context:get_spec",
    ),
    remove_when="a release of sglang is served whose tables are wide enough: attnfix then sees it and does nothing",
    cost=(
        "GPU memory, once at start: tables become wider by as many tokens as rows of `req_to_token` are longer than the "
        "context, most by 4 bytes * max_bs a token; with trees, those of window layers and tree masks by that for each draft "
        "token. No time per step. FlashAttention takes the width of a table into account when it splits KV; near a step of "
        "that rule results may differ by rounding."
    ),
    worst_cost=WorstCost(1.008, 0.961, 1.058, "every request has drafts", "h100-sglang-0.5.23"),
    avoid=(
        "Start with `--disable-cuda-graph`: eager steps read tables with room for drafts; decode gets slower. Clients "
        "may instead stop short of the context length."
    ),
    expect=(
        "On one replica with speculative decoding, send requests that run up to the context length: the server stays up. Other "
        "requests are answered as before."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("speculative decoding", ON),
        AnyOf(*(Is(f"{phase} backend", "fa3", "fa4") for phase in ("verify", "draft decode", "draft extend"))),
        Is("CUDA graphs", ON),
    ),
)
