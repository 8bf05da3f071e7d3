"""sglang.draft-kv-context-limit on real releases: a backend by its own constructor, from a launch's flags."""

from __future__ import annotations

import pytest

#: Slots of a request, and KV indices per request and branch in the buffer of CUDA graphs
CODE = """
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
from attnfix.patches.lab.sglang import construction, engine

served = construction.serve(
    "--attention-backend", "{backend}", "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "6",
    "--speculative-eagle-topk", "{topk}", "--speculative-num-draft-tokens", "{drafts}", "--max-running-requests", "8",
    config=construction.{model}, blackwell={blackwell},
)
backend = served.draft_steps("{kind}")
with engine.on_cpu():
    backend.init_cuda_graph_state(4, 4 * {topk})
answer([served.req_to_token_pool.req_to_token.shape[1], backend.cuda_graph_kv_indices.shape[1] / 4 / {topk}])
"""
CONTEXT, STEPS = 128, 6
ON = {"ATTNFIX_SGLANG_DRAFT_KV_CONTEXT_LIMIT": "1"}
FLASHINFER = {"backend": "flashinfer", "kind": "flashinfer_backend:FlashInferMultiStepDraftBackend"}
TRITON = {"backend": "triton", "kind": "triton_backend:TritonMultiStepDraftBackend"}
LATENT = {"model": "DEEPSEEK", "kind": "flashinfer_mla_backend:FlashInferMLAMultiStepDraftBackend", "backend": "flashinfer"}
TRTLLM = {"model": "DEEPSEEK", "kind": "trtllm_mla_backend:TRTLLMMLAMultiStepDraftBackend", "backend": "trtllm_mla"}
TRTLLM["blackwell"] = True


def code_of(topk, drafts, **server):
    return CODE.format(**{"model": "LLAMA", "blackwell": False, **server, "topk": topk, "drafts": drafts})


def aligned(indices):
    return -(-indices // 16) * 16


@pytest.mark.parametrize(
    "release, server, topk, drafts",
    [
        ("0.5.9", FLASHINFER, 1, 7), ("0.5.13", FLASHINFER, 1, 7), ("0.5.13", FLASHINFER, 4, 8),
        ("0.5.9", TRITON, 1, 7), ("0.5.9", TRITON, 4, 8), ("0.5.23", TRITON, 4, 8), ("0.5.9", LATENT, 1, 7),
        ("0.5.9", TRTLLM, 1, 7),
    ],
)  # fmt: skip
def test_rows_have_room_for_what_a_request_can_have_and_for_the_steps(engine_fork, release, server, topk, drafts):
    environment, code = engine_fork("sglang", release), code_of(topk, drafts, **server)
    slots, stock = environment.evaluate(code, ATTNFIX="0")
    assert (slots, stock) == (CONTEXT + 4 + drafts, CONTEXT)
    assert environment.evaluate(code, **ON) == [slots, aligned(slots + STEPS)]


def test_beside_draft_kv_indices(engine_fork):
    """Where the engine forgets the branches, too, both corrections hold together."""
    environment, code = engine_fork("sglang", "0.5.9"), code_of(4, 8, **FLASHINFER)
    assert environment.evaluate(code, ATTNFIX="0")[1] == CONTEXT / 4
    slots, both = environment.evaluate(code, **ON)
    assert both == aligned(slots + STEPS) + STEPS
