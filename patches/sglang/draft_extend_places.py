"""Witnesses that both uniform-replay-stride fixes share: who captures the draft-extend graph, replays it, and with what."""

_V2 = "sglang.srt.speculative.eagle_worker_v2:EagleDraftWorker"
_RUNNER = "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner:EAGLEDraftExtendCudaGraphRunner"
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
    f"{_MODE}.is_draft_extend",
    f"{_MODE}.is_draft_extend_v2",
    f"{_MODE}.DRAFT_EXTEND_V2",
)
