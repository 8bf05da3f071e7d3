"""What the fixes of spec v2's draft extend share: who captures its graph, replays it and with what, and who runs it."""

from attnfix.compat.doctor.condition import ON, AllOf, Is

_V2 = "sglang.srt.speculative.eagle_worker_v2:EagleDraftWorker"
_RUNNER = "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner:EAGLEDraftExtendCudaGraphRunner"
_LAYERS = "sglang.srt.speculative.multi_layer_eagle_draft_extend_cuda_graph_runner:MultiLayerEagleDraftExtendCudaGraphRunner"
_LAYERS_WORKER = "sglang.srt.speculative.multi_layer_eagle_worker_v2:MultiLayerEagleDraftWorker"
_MODE = "sglang.srt.model_executor.forward_batch_info:ForwardMode"

PLACES = (
    f"{_V2}.init_cuda_graphs",
    f"{_V2}._draft_extend_for_decode",
    "sglang.srt.speculative.eagle_info_v2:EagleDraftInputV2Mixin.prepare_for_extend_to_fill_draft_kvcache",
    "sglang.srt.speculative.eagle_info:EagleDraftInput.accept_length",
    "sglang.srt.speculative.eagle_info:EagleDraftInput.accept_length_cpu",
    f"{_RUNNER}.__init__",
    f"{_RUNNER}.capture_one_batch_size",
    f"{_RUNNER}.replay",
    # --enable-multi-layer-eagle: which backends its layers have, and by which stride it captures and replays them
    f"{_LAYERS_WORKER}.init_attention_backend",
    f"{_LAYERS_WORKER}._draft_extend_for_decode",
    f"{_LAYERS}.__init__",
    f"{_LAYERS}.init_buffers_and_capture",
    f"{_LAYERS}.get_forward_batch",
    f"{_LAYERS}.capture_one_batch_size",
    f"{_LAYERS}.init_replay_state",
    f"{_LAYERS}.replay",
    "sglang.srt.speculative.eagle_info:EagleDraftInput.num_tokens_per_req",
    "sglang.srt.speculative.eagle_info:EagleDraftInput.num_tokens_per_batch",
    f"{_MODE}.is_draft_extend",
    f"{_MODE}.is_draft_extend_v2",
    f"{_MODE}.DRAFT_EXTEND_V2",
)

_TRITON = "sglang.srt.layers.attention.triton_backend:TritonAttnBackend"
TRITON_REPLAY = f"{_TRITON}.init_forward_metadata_replay_cuda_graph"
#: What sets the stride, captures, calls and reads the metadata, and what later releases replay with
TRITON = (
    f"{_TRITON}.__init__",
    f"{_TRITON}.init_forward_metadata_capture_cuda_graph",
    f"{_TRITON}.forward_extend",
    f"{_TRITON}.init_cuda_graph_state",
    f"{_TRITON}.init_forward_metadata_out_graph",
    f"{_TRITON}._init_forward_metadata_out_graph",
    f"{_TRITON}._build_cuda_graph_forward_metadata",
    f"{_TRITON}._apply_cuda_graph_metadata",
    f"{_TRITON}._update_draft_extend_buffers",
    f"{_TRITON}._fill_kv_indptr_and_indices",
    "sglang.srt.layers.attention.triton_ops.extend_attention:extend_attention_fwd",
    "sglang.kernels.ops.attention.extend_attention:extend_attention_fwd",
    "sglang.srt.layers.attention.utils:create_flashinfer_kv_indices_triton",
    "sglang.srt.layers.attention.triton_ops.kv_indices:create_flashinfer_kv_indices_triton",
    f"{_MODE}.is_decode_or_idle",
    f"{_MODE}.is_target_verify",
)


def hits(backend: str) -> AllOf:
    """A deployment whose draft extend is replayed from a graph, through `backend`."""
    return AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Is("spec v2", ON),
        Is("draft extend backend", backend),
        Is("CUDA graphs", ON),
    )
