"""sglang.lora-captured-segments, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GRAPHS, SHARED_BATCH

from . import wrap

_BACKEND = "sglang.srt.lora.backend.chunked_backend:ChunkedSgmvLoRABackend"
_BASE = "sglang.srt.lora.backend.base_backend:BaseLoRABackend"
_MANAGER = "sglang.srt.lora.lora_manager:LoRAManager"
_OPS = "sglang.srt.lora.triton_ops"

FIX = Fix(
    id="sglang.lora-captured-segments",
    title="Requests of a LoRA adapter are answered by the base model beside those of another adapter",
    symptom=(
        "Several LoRA adapters, or one and the base model, decode together in CUDA graphs: the first adapter of a batch alone "
        "is applied. Requests of the others are answered by the base model. Alone, each request is right. No error."
    ),
    symptoms=(SHARED_BATCH, GRAPHS),
    cause=(
        "A graph is captured for requests without an adapter, which make one segment of up to 16 tokens. The kernels keep "
        "their number of segments from then, and leave out those of further adapters."
    ),
    correction=(
        "A graph is captured with the most segments that a batch of its size may have. Those that a batch lacks are empty: "
        "their programs end at once. Adapters of experts in verification of more than 16 drafts stay as they are."
    ),
    upstream=Upstream("sgl-project/sglang", pull=28371),
    hardware="any GPU (LoRA adapters on csgmv, the default from 0.5.5, with CUDA graphs)",
    default=True,
    default_reason="silent wrong output of an adapter's users; fixed upstream in the same way",
    targets=(
        Target(
            wrap.prepare_lora_batch,
            needed=wrap.in_a_graph,
            paths=(f"{_BACKEND}.prepare_lora_batch",),
        ),
    ),
    # How a batch is laid out, in which buffers, and who reads that
    witnesses=(
        f"{_BACKEND}._determine_chunk_size",
        f"{_BACKEND}._determine_chunk_size_for_tokens",
        f"{_BACKEND}._get_permutation",
        f"{_BACKEND}._get_segments_info",
        f"{_BACKEND}._build_req_seg_indptr",
        f"{_BACKEND}._prepare_lm_head_batch_info",
        f"{_BACKEND}._build_lm_head_batch_info",
        f"{_BACKEND}.init_cuda_graph_batch_info",
        f"{_BACKEND}.run_lora_a_embedding",
        f"{_BACKEND}.run_lora_a_sgemm",
        f"{_BACKEND}.run_lora_b_sgemm",
        f"{_BACKEND}.run_qkv_lora",
        f"{_BACKEND}.run_gate_up_lora",
        f"{_BASE}._add_moe_lora_info",
        "sglang.srt.lora.backend.lmhead_mixing:LoRABackendLmHeadMixing._get_lm_head_pass_segments",
        f"{_MANAGER}.init_cuda_graph_batch_info",
        f"{_MANAGER}.prepare_lora_batch",
        "sglang.srt.lora.layers:FusedMoEWithLoRA._get_lora_info",
        "sglang.srt.lora.utils:LoRABatchInfo",
        "sglang.srt.lora.utils:generate_sequence_lengths",
        "sglang.srt.lora.utils:get_lm_head_pruned_lens",
        "sglang.srt.lora.utils:merge_and_chunk_segments",
        f"{_OPS}.chunked_sgmv_shrink:chunked_sgmv_lora_shrink_forward",
        f"{_OPS}.chunked_sgmv_shrink:_chunked_lora_shrink_kernel",
        f"{_OPS}.chunked_sgmv_expand:chunked_sgmv_lora_expand_forward",
        f"{_OPS}.chunked_sgmv_expand:_chunked_lora_expand_kernel",
        f"{_OPS}.chunked_embedding_lora_a:chunked_embedding_lora_a_forward",
        f"{_OPS}.chunked_embedding_lora_a:_chunked_embedding_lora_a_kernel",
        f"{_OPS}.kv_b_lora_absorbed:_num_segments",
        f"{_OPS}.kv_b_lora_absorbed:_segment_grid_size",
    ),
    cost=(
        "Two small kernels for each step that is laid out for a graph. In the graph, as many more programs as a batch may have "
        "more segments: each reads two numbers and ends. Work on adapters that were left out is done."
    ),
    avoid="Set `--lora-backend triton`.",
    expect=(
        "On one replica, let requests of two adapters decode together: each gets the answer that it gets alone. Stock, the "
        "second adapter's requests continue like the base model's."
    ),
    hits=AllOf(
        Is("LoRA adapters", ON),
        Is("LoRA backend", "csgmv"),
        AnyOf(Above("LoRA slots", 1), Above("LoRA chunk", 16), Above("LoRA drafts", 16)),
        Is("CUDA graphs", ON),
    ),
)
