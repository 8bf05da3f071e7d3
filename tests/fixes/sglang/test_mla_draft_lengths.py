"""sglang.mla-draft-lengths on real releases: draft steps next to the context length, several graphs, a batch that is idle."""

from __future__ import annotations

import pytest

CODE = """
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
from attnfix.patches.sglang.mla_draft_lengths import proof

made = proof.Proof()
made.prepare()
"""
#: Errors of each row, of each step; requests are a short one between two next to the context length
WALL = (
    CODE
    + """
lens = [proof._CONTEXT - 1, 9, proof._CONTEXT - 3]
servers = [proof.Server(made.engine, home, 5) for home in proof._KINDS]
answer([[[one.error for one in server.draft(lens, graph)] for graph in (False, True)] for server in servers])
"""
)
#: What a step's backend is planned with where the batch is idle, before and after a draft
IDLE = (
    CODE
    + """
import torch
from attnfix.patches.lab.sglang.engine import on_cpu
lens = []
for home in proof._KINDS:
    server = proof.Server(made.engine, home, 5)
    list(server.draft([5, 9], False))
    batch = server._batch(2, True)
    batch.forward_mode = made.engine[proof._BATCH].ForwardMode.IDLE
    step = server.steps.attn_backends[1]
    q = torch.zeros(2, proof.HEADS, proof.DIM).bfloat16()
    with on_cpu():
        step.init_forward_metadata(batch)
    batch.forward_mode = made.engine[proof._BATCH].ForwardMode.DECODE
    out = step.forward_decode(q.flatten(1), None, None, server.layer, batch, save_kv_cache=False)
    key = server.cache[server.req_to_token[0, :1].long(), 0, : proof.LORA]
    lens.append(float((out.view(2, proof.HEADS, proof.LORA) - key).abs().max()))
answer(lens)
"""
)
ON = {"ATTNFIX_SGLANG_MLA_DRAFT_LENGTHS": "1"}
RELEASES = ["0.5.9", "0.5.13.post1", "0.5.23"]
STEPS, ROWS = 3, 3


@pytest.mark.parametrize("release", RELEASES)
def test_next_to_the_context_length_no_step_is_worse_and_a_short_request_is_right(engine_fork, release):
    environment = engine_fork("sglang", release)
    stock, fixed = environment.evaluate(WALL, ATTNFIX="0"), environment.evaluate(WALL, **ON)
    for before, after in zip(stock, fixed, strict=True):
        for graph in (0, 1):
            assert len(after[graph]) == STEPS * ROWS
            assert max(after[graph][1::ROWS]) < 0.01 < min(before[graph][1::ROWS])
            assert all(new <= old + 0.01 for new, old in zip(after[graph], before[graph]))


@pytest.mark.parametrize("release", RELEASES)
def test_what_was_planned_of_an_idle_batch_is_read_without_drafts(engine_fork, release):
    """Data parallelism pads such a batch to a decode step; each row attends to the one key of padding rows."""
    assert max(engine_fork("sglang", release).evaluate(IDLE, **ON)) < 0.01
