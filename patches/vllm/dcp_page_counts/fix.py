"""vllm.dcp-page-counts, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, PARALLEL

from . import wrap

_BACKEND = "vllm.v1.attention.backends.flashinfer"
_BUILDER = f"{_BACKEND}:FlashInferMetadataBuilder"
_UTILS = "vllm.v1.attention.backends.utils"

FIX = Fix(
    id="vllm.dcp-page-counts",
    title="Gibberish with decode context parallelism on FlashInfer",
    symptom=(
        "With --decode-context-parallel-size above 1 and FlashInfer: gibberish from the first token on. No error. In "
        "0.11.1-0.13.0 with a drafter, or attention in several groups, and in 0.12.0-0.13.0 with "
        "--cp-kv-cache-interleave-size above 1."
    ),
    symptoms=(PARALLEL, GARBAGE),
    cause=(
        "Each rank holds a share of every request's KV. Since 0.14.0 (PR 29128) FlashInfer's page tables are reckoned from the "
        "lengths of all shares, those of prefills even with the new tokens: a rank reads pages that hold nothing of the "
        "request, and the wrong part of the last one. Two more faults are older: new tokens are taken off the shared lengths "
        "in place, again by each builder of the same step; and from 0.12.0 the former name of the interleave size is read."
    ),
    correction=(
        "Pages and the fill of the last one are counted from this rank's own lengths, by the interleave size that is in force; "
        "the builder gets a copy of the lengths."
    ),
    upstream=Upstream("vllm-project/vllm", pull=48003),
    hardware="any GPU (--decode-context-parallel-size above 1 with --attention-backend FLASHINFER, models without MLA)",
    default=True,
    default_reason="silent wrong output; later releases count in the same way",
    targets=(
        Target(wrap.build, needed=wrap.on_several_ranks, paths=(f"{_BUILDER}.build",)),
        Target(
            wrap.compute_kv_metadata,
            needed=wrap.on_several_ranks,
            paths=(f"{_BUILDER}._compute_flashinfer_kv_metadata",),
        ),
    ),
    independent=True,  # up to 0.13.0 `build` counts by itself, of the right lengths
    # Who counts, what a share is, and what is planned with the counts
    witnesses=(
        f"{_BUILDER}.__init__",
        f"{_BUILDER}._get_prefill_wrapper",
        f"{_BUILDER}._get_decode_wrapper",
        f"{_BACKEND}:BatchDCPPrefillWrapper.plan",
        f"{_BACKEND}:_copy_page_indices_kernel",
        f"{_BACKEND}:fast_plan_decode",
        f"{_UTILS}:get_dcp_local_seq_lens",
        f"{_UTILS}:split_decodes_and_prefills",
        "vllm.v1.attention.backend:CommonAttentionMetadata",
        f"{_UTILS}:CommonAttentionMetadata",
        f"{_BACKEND}:FlashInferMetadata",
        f"{_BACKEND}:FIPrefill",
        f"{_BACKEND}:FIDecode",
        "vllm.utils.flashinfer:use_trtllm_attention",
        "vllm.utils.gpu_sync_debug:gpu_sync_allowed",
    ),
    remove_when="no vLLM below 0.30.0 is served with decode context parallelism on FlashInfer",
    cost="Some µs of host time per step, of small tensors on the host.",
    avoid=(
        "Start on Hopper with `--attention-backend FLASH_ATTN`, in 0.13.0–0.19.1 also "
        "`--compilation-config.cudagraph_mode PIECEWISE`; elsewhere serve without DCP."
    ),
    expect=(
        "On one replica with --decode-context-parallel-size above 1, answers become those of the same model without it. (Up to "
        "0.28.0 prefills need vllm.lse-log-base, too.)"
    ),
    hits=AllOf(
        Is("attention", "MHA"),
        Above("decode context parallel size", 1),
        Is("attention backend", "FLASHINFER"),
        Is("FlashInfer's page counts", "wrong"),
    ),
)
