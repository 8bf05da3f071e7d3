"""sglang.draft-kv-wall on real releases: rows of KV indices of a backend by its own constructor, from a launch's flags."""

from __future__ import annotations

import pytest

#: Slots of a request, and KV indices per request and branch in the buffer of CUDA graphs
CODE = """
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
from attnfix.patches.proofkit.sglang import construction, engine

served = construction.serve(
    "--attention-backend", "flashinfer", "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "6",
    "--speculative-eagle-topk", "{topk}", "--speculative-num-draft-tokens", "{drafts}", "--max-running-requests", "8",
)
backend = served.draft_steps("flashinfer_backend:FlashInferMultiStepDraftBackend")
with engine.on_cpu():
    backend.init_cuda_graph_state(4, 4 * {topk})
answer([served.req_to_token_pool.req_to_token.shape[1], backend.cuda_graph_kv_indices.shape[1] / 4 / {topk}])
"""
CONTEXT, STEPS = 128, 6
ON = {"ATTNFIX_SGLANG_DRAFT_KV_WALL": "1"}


@pytest.mark.parametrize("release, topk, drafts", [("0.5.9", 1, 7), ("0.5.13", 1, 7), ("0.5.13", 4, 8)])
def test_rows_have_room_for_what_a_request_can_have_and_for_the_steps(engine_fork, release, topk, drafts):
    environment, code = engine_fork("sglang", release), CODE.format(topk=topk, drafts=drafts)
    slots, stock = environment.evaluate(code, ATTNFIX="0")
    assert (slots, stock) == (CONTEXT + 4 + drafts, CONTEXT)
    assert environment.evaluate(code, **ON) == [slots, slots + STEPS]


def test_beside_draft_kv_indices(engine_fork):
    """Where the engine forgets the branches, too, both corrections hold together."""
    environment, code = engine_fork("sglang", "0.5.9"), CODE.format(topk=4, drafts=8)
    assert environment.evaluate(code, ATTNFIX="0")[1] == CONTEXT / 4
    slots, both = environment.evaluate(code, **ON)
    assert both == slots + 2 * STEPS
