"""sglang.skip-seq-lens-sync, as data.

Development code alone has the fault: upstream's main between PR 26128, which let a backend do without `seq_lens` on the host,
and PR 26824, by which the trtllm_mla backends make use of it. Whether they may depends on everything a speculative batch runs
through: a read of `seq_lens_cpu` or `seq_lens_sum` there meets None. (So it was for a day upstream: PR 26738.) So all of that
path is a witness, and must be that of 0.5.13, which is served without the lengths, less the opt-out.
"""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Attribute, Fix, Override, Target, Upstream
from attnfix.compat.symptoms import SLOW

from . import wrap

_SRT = "sglang.srt"
_MODEL, _SPEC = f"{_SRT}.model_executor", f"{_SRT}.speculative"
BACKEND = f"{_SRT}.layers.attention.trtllm_mla_backend"

#: What a speculative batch runs through
PATH = (
    # The backends (the whole module: it is short of the opt-out alone), what they inherit, who inherits from them
    f"{BACKEND}:",
    f"{_SRT}.layers.attention.flashinfer_mla_backend:FlashInferMLAAttnBackend",
    f"{_SRT}.layers.attention.flashinfer_mla_backend:FlashInferMLAMultiStepDraftBackend",
    f"{_SRT}.layers.attention.base_attn_backend:AttentionBackend",
    f"{_SRT}.layers.attention.tokenspeed_mla_backend:TokenspeedMLABackend",
    f"{_SRT}.layers.attention.tokenspeed_mla_backend:TokenspeedMLAMultiStepDraftBackend",
    # Who asks them, and what follows from the answer
    f"{_SRT}.managers.overlap_utils:decide_needs_cpu_seq_lens",
    f"{_SRT}.managers.overlap_utils:FutureMap",
    f"{_SRT}.managers.scheduler:Scheduler.init_overlap",
    f"{_SRT}.managers.scheduler:Scheduler.run_batch",
    f"{_SRT}.managers.scheduler_components.metrics_reporter:_decode_total_seq_lens",
    f"{_SRT}.managers.schedule_batch:ScheduleBatch.prepare_for_decode",
    f"{_SRT}.managers.schedule_batch:ScheduleBatch.filter_batch",
    f"{_SRT}.managers.schedule_batch:ScheduleBatch.merge_batch",
    # The forward batch, and the graph runners that copy it
    f"{_MODEL}.forward_batch_info:ForwardBatch.init_new",
    f"{_MODEL}.forward_batch_info:ForwardBatch._pad_inputs_to_size",
    f"{_MODEL}.forward_batch_info:ForwardBatch.post_forward_mlp_sync_batch",
    f"{_MODEL}.forward_batch_info:build_inner_fb_view",
    f"{_MODEL}.cuda_graph_runner:build_replay_fb_view",
    f"{_MODEL}.cuda_graph_buffer_registry:build_decode_registry",
    f"{_SRT}.models.deepseek_common.attention_backend_handler:_support_mha_one_shot",
    f"{_SRT}.utils.common:is_float4_e2m1fn_x2",
    # The workers: draft, verify, draft again
    f"{_SPEC}.base_spec_worker:BaseSpecWorker",
    f"{_SPEC}.eagle_worker_v2:EagleDraftWorker.draft",
    f"{_SPEC}.eagle_worker_v2:EagleDraftWorker._draft_extend_for_decode",
    f"{_SPEC}.eagle_worker_v2:EAGLEWorkerV2.spec_v2_attn_backends",
    f"{_SPEC}.eagle_worker_v2:EAGLEWorkerV2.verify",
    f"{_SPEC}.eagle_info_v2:EagleDraftInputV2Mixin",
    f"{_SPEC}.eagle_info_v2:EagleVerifyInputV2Mixin",
    f"{_SPEC}.eagle_utils:build_tree_kernel_efficient",
    f"{_SPEC}.eagle_draft_cuda_graph_runner:EAGLEDraftCudaGraphRunner.replay",
    f"{_SPEC}.eagle_draft_extend_cuda_graph_runner:EAGLEDraftExtendCudaGraphRunner.replay",
)

FIX = Fix(
    id="sglang.skip-seq-lens-sync",
    title="Slower speculative decoding: the CPU waits for the GPU in each step",
    symptom=(
        "Speculative decoding with the overlap scheduler takes longer than necessary. In every decode step the CPU waits until "
        "the GPU has verified the draft. The GPU then idles while the CPU prepares the next step. Results are right."
    ),
    symptoms=(SLOW,),
    cause=(
        "The overlap scheduler copies seq_lens to the host for any attention backend that does not opt out. The trtllm_mla "
        "backends read no host copy in speculative steps, but do not say so."
    ),
    correction=(
        "Both backend classes opt out, and the tree mask, which was sized by the lengths on the host, is allocated once with "
        "the CUDA graph's buffers, for the worst case. The copy stays where another backend needs it, with two-batch overlap, "
        "with piecewise CUDA graphs, with algorithms other than EAGLE and EAGLE3, and where 0.5.13 itself fails without it: "
        "with multi-layer EAGLE and with forward-pass metrics."
    ),
    upstream=Upstream("sgl-project/sglang", pull=26824),
    hardware="Blackwell (--attention-backend trtllm_mla with speculative decoding, no --enable-two-batch-overlap)",
    default_reason="performance; no published release is affected, only development images of a few days",
    targets=(
        Target(wrap.decide_needs_cpu_seq_lens, paths=("sglang.srt.managers.overlap_utils:decide_needs_cpu_seq_lens",)),
        Target(wrap.init_cuda_graph_state, paths=(f"{BACKEND}:TRTLLMMLABackend.init_cuda_graph_state",)),
        Override(
            wrap.get_verify_buffers_to_fill_after_draft,
            paths=(f"{BACKEND}:TRTLLMMLABackend.get_verify_buffers_to_fill_after_draft",),
            of=("sglang.srt.layers.attention.base_attn_backend:AttentionBackend.get_verify_buffers_to_fill_after_draft",),
        ),
        Attribute(False, paths=(f"{BACKEND}:TRTLLMMLABackend.needs_cpu_seq_lens",)),
        Attribute(False, paths=(f"{BACKEND}:TRTLLMMLAMultiStepDraftBackend.needs_cpu_seq_lens",)),
    ),
    witnesses=PATH,
    remove_when="no sglang main of 2026-05-29 to 2026-06-01 is served",
    cost=(
        "GPU memory for the mask, in the target's and in the draft-extend backend: max batch size * draft tokens * (context "
        "length + draft tokens) bytes each, e.g. 84 MB for 128 * 4 * 160k. Every draft step fills the target's whole (10-20 µs "
        "on a B200, counted from its bandwidth), as 0.5.13 does. No launch is added."
    ),
    expect=(
        "On one replica of such an image with trtllm_mla, EAGLE and --disable-piecewise-cuda-graph: the same text at "
        "temperature 0, and in a profile no device-to-host copy between verify and the next draft; fewer milliseconds per "
        "token where the CPU was the limit. Compare the free GPU memory at start: the mask takes its share."
    ),
    harm=SLOWER,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Is("spec v2", ON),
        Is("decode backend", "trtllm_mla"),
        Is("two-batch overlap", OFF),
    ),
)
