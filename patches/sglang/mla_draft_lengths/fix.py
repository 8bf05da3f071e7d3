"""sglang.mla-draft-lengths, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import SPECULATION

from . import wrap

_ATTENTION = "sglang.srt.layers.attention"
_LISTS, _PAGES, _TRTLLM = (f"{_ATTENTION}.{name}_backend" for name in ("flashinfer_mla", "flashmla", "trtllm_mla"))
_FLASHINFER, _FLASHMLA, _TRT = (
    f"{_LISTS}:FlashInferMLAAttnBackend",
    f"{_PAGES}:FlashMLABackend",
    f"{_TRTLLM}:TRTLLMMLABackend",
)
_STEPS = f"{_LISTS}:FlashInferMLAMultiStepDraftBackend"
_INDICES = (
    f"{_ATTENTION}.utils",
    f"{_ATTENTION}.triton_ops.kv_indices",
    "sglang.kernels.ops.kvcache.kv_indices",
    "sglang.kernels.ops.attention.kv_indices",
)
_KERNELS = ("create_flashmla_kv_indices_triton", "create_flashinfer_kv_indices_triton", "get_num_kv_index_blocks_flashmla")
_DRAFTED = (
    "sglang.srt.speculative.eagle_utils",
    "sglang.srt.speculative.spec_utils",
    "sglang.srt.speculative.triton_ops.cache_locs",
    "sglang.kernels.ops.speculative.cache_locs",
)
_MODES = ("decode", "decode_or_idle", "extend", "target_verify", "draft_extend", "draft_extend_v2")
_READS = ("pack_read_stream", "read_source", "index_table_for_batch", "build_index_table", "reads_are_translated")


def _plans(backend: str) -> tuple[Target, ...]:
    """Where a step is planned: without a graph, in one from 0.5.13 on, and in one before."""
    name = f"{backend}.init_forward_metadata"
    return (
        Target(wrap.plan, needed=wrap.drafts, paths=(name,)),
        Target(wrap.plan, needed=wrap.drafts, paths=(f"{name}_out_graph",)),
        Target(wrap.plan_graph, needed=wrap.drafts, paths=(f"{name}_capture_cuda_graph",)),
        Target(wrap.plan_graph, needed=wrap.drafts, paths=(f"{name}_replay_cuda_graph",)),
    )


FIX = Fix(
    id="sglang.mla-draft-lengths",
    title="EAGLE and MTP accept fewer drafts on MLA backends",
    symptom=(
        "DeepSeek-type models with EAGLE or MTP accept fewer drafts on flashinfer, flashmla or trtllm_mla than on fa3 or "
        "triton. The accept length that the engine logs is low. The text is right, and nothing is logged."
    ),
    symptoms=(SPECULATION,),
    cause=(
        "All draft steps are planned with the lengths of the cached tokens. A step should also attend to its own token and to "
        "the drafts before it. On flashinfer in CUDA graphs, the lists of slots hold these, and the plan does not count them: "
        "each request but the first begins too early in the list, in the newest tokens of the one before it."
    ),
    correction=(
        "The backend of draft step i gets lengths that are i + 1 longer, for its plan and for its kernel. The target's own "
        "backend, draft extend and idle batches are left alone, and so are decode context parallelism, cutedsl_mla and "
        "tokenspeed_mla. On flashmla and trtllm_mla a length never passes the context length, as the tables of pages need not: "
        "next to it drafts are as before."
    ),
    upstream=Upstream("sgl-project/sglang", report="sglang-mla-draft-lengths"),
    hardware=(
        "DeepSeek-type models with EAGLE or MTP: Blackwell (trtllm_mla, its default there), Hopper with --attention-backend "
        "flashmla, any GPU with --attention-backend flashinfer"
    ),
    targets=(
        Target(wrap.init_lists, paths=(f"{_STEPS}.__init__",)),
        Target(wrap.init_tables, paths=(f"{_PAGES}:FlashMLAMultiStepDraftBackend.__init__",)),
        Target(wrap.init_tables, paths=(f"{_TRTLLM}:TRTLLMMLAMultiStepDraftBackend.__init__",)),
        *_plans(_FLASHINFER),
        *_plans(_FLASHMLA),
        *_plans(_TRT),
        *(
            Target(wrap.forward_decode, needed=wrap.planned_drafts, paths=(f"{backend}.forward_decode",))
            for backend in (_FLASHMLA, _TRT)
        ),
    ),
    independent=True,  # a server loads the backend that it drafts on, and a release has one way to plan graphs
    # What is planned of a step, and with which lists and tables; what a plan is, and what its kernel is told
    witnesses=(
        f"{_STEPS}.init_forward_metadata",
        f"{_STEPS}.common_template",
        f"{_STEPS}.init_forward_metadata_out_graph",
        f"{_STEPS}.init_forward_metadata_capture_cuda_graph",
        f"{_STEPS}.init_forward_metadata_replay_cuda_graph",
        f"{_PAGES}:FlashMLAMultiStepDraftBackend",
        f"{_TRTLLM}:TRTLLMMLAMultiStepDraftBackend",
        *(f"{backend}.__init__" for backend in (_FLASHINFER, _FLASHMLA, _TRT)),
        *(f"{backend}.init_cuda_graph_state" for backend in (_FLASHINFER, _FLASHMLA, _TRT)),
        f"{_FLASHINFER}._apply_cuda_graph_metadata",
        f"{_FLASHMLA}._apply_decode_target_verify_metadata",
        f"{_TRT}._init_cuda_graph_metadata",
        f"{_TRT}._apply_cuda_graph_metadata",
        f"{_LISTS}:FlashInferMLAIndicesUpdaterDecode",
        f"{_LISTS}:DecodeMetadata",
        f"{_LISTS}:fast_mla_decode_plan",
        f"{_FLASHINFER}.forward_decode",
        f"{_PAGES}:FlashMLADecodeMetadata",
        f"{_FLASHMLA}._eager_block_kv_indices",
        f"{_TRTLLM}:TRTLLMMLADecodeMetadata",
        f"{_TRT}._calc_padded_blocks",
        f"{_TRT}._create_block_kv_indices",
        f"{_TRT}._run_decode_kernel",
        *(f"{module}:{name}" for module in _INDICES for name in _KERNELS),
        *(f"{module}:generate_draft_decode_kv_indices" for module in _DRAFTED),
        *(f"sglang.srt.model_executor.forward_batch_info:ForwardMode.is_{mode}" for mode in _MODES),
        "sglang.srt.model_executor.forward_batch_info:build_inner_fb_view",
        *(f"sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.{name}" for name in _READS),
        "sglang.srt.mem_cache.layout.paged_view:paged_row_view",
        "sglang.srt.mem_cache.layout.paged_view:paged_view",
        "sglang.srt.layers.dcp.comm:dcp_enabled",
        "sglang.srt.environ:EnvField",
    ),
    remove_when="a release of sglang is served whose draft steps count their drafts: attnfix then sees it and does nothing",
    cost=(
        "Per draft step a copy of the batch's fields and up to three operations on its lengths; on flashmla, and on trtllm_mla "
        "up to 0.5.16, as many in the graph for each layer of the drafter."
    ),
    avoid=(
        "Set `--attention-backend fa3` on Hopper or `triton` elsewhere: drafts see all tokens; on Blackwell attention "
        "slows, so compare tokens per second."
    ),
    expect=(
        "On one replica with --speculative-num-steps above 1, compare the accept length that the engine logs (`accept len`): "
        "it rises, to what fa3 or triton has. The text keeps its distribution: every token is verified."
    ),
    harm=SLOWER,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative steps", 1),
        Is("attention", "MLA"),
        AnyOf(  # flashinfer drafts with any attention, each in its own class
            Is("draft decode backend", "flashmla", "trtllm_mla"),
            AllOf(Is("draft decode backend", "flashinfer"), Is("latent attention of the drafter", ON)),
        ),
    ),
)
