"""Recognises the code of upstream's main between PR 26128, which let a backend do without `seq_lens` on the host, and PR 26824,
by which the trtllm_mla backends make use of it.

Whether they may depends on everything a speculative batch runs through: a read of `seq_lens_cpu` or `seq_lens_sum` there meets
None. (So it was for a day upstream: PR 26738.) No rule about single reads is safe, since a guarded one is right and a helper
hides the other. So nothing is guessed: the whole path must be that of 0.5.13, which is served without the lengths, except that
`trtllm_mla_backend` lacks the opt-out and all that goes with it. Putting it back gives code that is known to work.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from attnfix.compat.digest import digest

_SRT = "sglang.srt"
_MODEL, _SPEC = f"{_SRT}.model_executor", f"{_SRT}.speculative"
BACKEND = f"{_SRT}.layers.attention.trtllm_mla_backend"

#: What a speculative batch runs through, in the order in which it is digested
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

#: Digests of that path in 0.5.13 without the opt-out: without the mask's attribute, and with it left at None
KNOWN = frozenset(
    {
        "df210d7895e7d168d6113d5537ed44f5da5535f075df0774891bd6e7e3948ca0",
        "9e4428bd463858d80de0c0b1359df9d3eb81998129333b541d3fc8ffe2a3b3a3",
    }
)


def structure(locate: Callable[[str], ast.AST | None]) -> str | None:
    """Why this is the fault in full, or None for any other code."""
    if digest_of_path(locate) in KNOWN:
        return "the speculative path of 0.5.13, whose trtllm_mla backends do not opt out of seq_lens on the host"
    return None


def digest_of_path(locate: Callable[[str], ast.AST | None]) -> str | None:
    """One digest of all of PATH; None where a part of it is missing."""
    parts = []
    for place in PATH:
        if (part := locate(place)) is None:
            return None
        parts.append(part)
    # A module in the place of a statement: only the digest's walk sees this tree
    return digest(ast.Module(body=parts, type_ignores=[]))  # type: ignore[arg-type]
