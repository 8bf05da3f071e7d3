"""sglang.skip-seq-lens-sync, as data."""

from attnfix.compat.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Attribute, Fix, Override, Target, Upstream

from . import wrap
from .structure import BACKEND, PATH, structure

FIX = Fix(
    id="sglang.skip-seq-lens-sync",
    title="Every speculative batch waits for seq_lens on the host",
    symptom=(
        "With speculative decoding and the overlap scheduler, the CPU waits in every decode step until the GPU has verified "
        "the draft, and the GPU idles while the next step is prepared. Results are right."
    ),
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
    default=False,
    default_reason="performance; no published release is affected, only development images of a few days",
    targets=(
        Target(wrap.decide_needs_cpu_seq_lens, at=("sglang.srt.managers.overlap_utils:decide_needs_cpu_seq_lens",)),
        Target(wrap.init_cuda_graph_state, at=(f"{BACKEND}:TRTLLMMLABackend.init_cuda_graph_state",)),
        Override(
            wrap.get_verify_buffers_to_fill_after_draft,
            at=(f"{BACKEND}:TRTLLMMLABackend.get_verify_buffers_to_fill_after_draft",),
            of=("sglang.srt.layers.attention.base_attn_backend:AttentionBackend.get_verify_buffers_to_fill_after_draft",),
        ),
        Attribute(False, at=(f"{BACKEND}:TRTLLMMLABackend.needs_cpu_seq_lens",)),
        Attribute(False, at=(f"{BACKEND}:TRTLLMMLAMultiStepDraftBackend.needs_cpu_seq_lens",)),
    ),
    witnesses=PATH,
    examined=(">=0.5.1",),
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
    structure=structure,
    harm=SLOWER,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Is("spec v2", ON),
        Is("decode backend", "trtllm_mla"),
        Is("two-batch overlap", OFF),
    ),
)
