"""sglang.mla-draft-lengths: the arguments of a step's plan and kernel without an engine, and draft steps on real releases."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mla_draft_lengths import wrap
from attnfix.patches.sglang.mla_draft_lengths.fix import FIX
from tests.support import one_call

PLAN, GRAPH, REPLAY = (
    one_call.target_of(FIX, f"init_forward_metadata{name}") for name in ("", "_out_graph", "_replay_cuda_graph")
)
FORWARD, INIT = one_call.target_of(FIX, "forward_decode"), one_call.target_of(FIX, "__init__")
STEP, LIMIT = 2, 40
DECODE, IDLE = (SimpleNamespace(is_decode=lambda answer=answer: answer) for answer in (True, False))


class Backend:
    """Plans with a batch, and keeps what it was given."""

    def __init__(self, drafts=None, lens_in_plan=False):
        self.lens_in_plan, self.given, self.forward_metadata = lens_in_plan, [], None
        if drafts:
            self.attnfix_drafts = drafts

    def init_forward_metadata(self, forward_batch):
        self.given.append(forward_batch)
        lens = forward_batch.seq_lens.int() if self.lens_in_plan else None
        self.forward_metadata = SimpleNamespace(seq_lens_k=lens, batch_size=len(forward_batch.seq_lens))
        forward_batch.decode_trtllm_mla_metadata = self.forward_metadata

    def init_forward_metadata_replay_cuda_graph(self, bs, seq_lens, seq_lens_sum, forward_mode, seq_lens_cpu):
        self.given.append((seq_lens, seq_lens_cpu))

    def forward_decode(self, q, forward_batch):
        """As TRT-LLM's: a batch that has grown since is planned anew."""
        plan = getattr(forward_batch, "decode_trtllm_mla_metadata", None) or self.forward_metadata
        if plan.batch_size < len(forward_batch.seq_lens):
            self.replan(forward_batch)
            plan = forward_batch.decode_trtllm_mla_metadata
        return (forward_batch.seq_lens if plan.seq_lens_k is None else plan.seq_lens_k).tolist()

    def replan(self, forward_batch):
        one_call.run(PLAN, Backend.init_forward_metadata, FixState(FIX), self, forward_batch)


def step(tokens=STEP, limit=None, **fields):
    return Backend(wrap.Drafts(tokens, limit), **fields)


def batch(*lens, mode=DECODE, host=True):
    seq_lens = torch.tensor(lens)
    return SimpleNamespace(
        forward_mode=mode, seq_lens=seq_lens, seq_lens_cpu=seq_lens.clone() if host else None, seq_lens_sum=sum(lens)
    )


def planned(backend, forward_batch, target=PLAN):
    state = FixState(FIX)
    one_call.run(target, Backend.init_forward_metadata, state, backend, forward_batch)
    return state.counters.corrections


def forward(backend, forward_batch):
    return one_call.run(FORWARD, Backend.forward_decode, FixState(FIX), backend, None, forward_batch)


@pytest.mark.parametrize("target", [PLAN, GRAPH])
def test_a_step_is_planned_with_its_drafts_and_the_batch_of_all_steps_stays(target):
    shared, backend = batch(5, 9), step()
    assert planned(backend, shared, target) == 1
    (given,) = backend.given
    assert (given.seq_lens.tolist(), given.seq_lens_cpu.tolist(), given.seq_lens_sum) == ([7, 11], [7, 11], 18)
    assert (shared.seq_lens.tolist(), shared.seq_lens_cpu.tolist(), shared.seq_lens_sum) == ([5, 9], [5, 9], 14)


def test_what_the_host_does_not_know_stays_unknown():
    backend = step()
    shared = batch(5, host=False)
    shared.seq_lens_sum = None
    planned(backend, shared)
    assert (backend.given[0].seq_lens_cpu, backend.given[0].seq_lens_sum) == (None, None)


@pytest.mark.parametrize("backend, mode", [(Backend(), DECODE), (step(), IDLE)])
def test_the_targets_own_backend_and_batches_that_do_not_draft_are_left_alone(backend, mode):
    shared = batch(5, mode=mode)
    assert planned(backend, shared) == 0 and backend.given == [shared]
    assert forward(backend, shared) == [5]


def test_a_replay_of_older_releases():
    backend, lens = step(), torch.tensor([5, 9])
    state = FixState(FIX)
    run = Backend.init_forward_metadata_replay_cuda_graph
    one_call.run(REPLAY, run, state, backend, 2, lens, seq_lens_sum=-1, forward_mode=DECODE, seq_lens_cpu=lens.clone())
    assert [one.tolist() for one in backend.given[0]] == [[7, 11], [7, 11]]
    assert lens.tolist() == [5, 9] and state.counters.corrections == 1


def test_no_length_passes_the_limit_and_none_gets_shorter():
    backend = step(tokens=3, limit=LIMIT)
    planned(backend, batch(LIMIT - 3, LIMIT - 1, LIMIT, LIMIT + 5))
    assert backend.given[0].seq_lens.tolist() == [LIMIT, LIMIT, LIMIT, LIMIT + 5]


@pytest.mark.parametrize("lens_in_plan", [False, True])
def test_each_step_attends_by_its_own_plan(lens_in_plan):
    """All steps are planned first; on the batch lies what the last one planned."""
    shared, steps = batch(5, 9), [step(tokens, lens_in_plan=lens_in_plan) for tokens in (1, 2, 3)]
    for one in steps:
        planned(one, shared)
    assert [forward(one, shared) for one in steps] == [[6, 10], [7, 11], [8, 12]]
    assert shared.seq_lens.tolist() == [5, 9]


@pytest.mark.parametrize("lens_in_plan", [False, True])
def test_a_batch_that_was_padded_since_is_planned_anew_and_counted_once(lens_in_plan):
    shared, steps = batch(5, 9), [step(tokens, lens_in_plan=lens_in_plan) for tokens in (1, 2)]
    for one in steps:
        planned(one, shared)
    shared.seq_lens = shared.seq_lens_cpu = torch.tensor([5, 9, 1])
    for layer in range(2):
        assert [forward(one, shared) for one in steps] == [[6, 10, 2], [7, 11, 3]], layer


def test_a_plan_without_drafts_is_read_as_it_is():
    backend, idle = step(), batch(1, mode=IDLE)
    planned(backend, idle)
    assert forward(backend, batch(1)) == [1]  # padded to a decode step since


class Steps:
    def __init__(self, page_size=1, **fields):
        updater = SimpleNamespace(page_size=page_size)
        self.attn_backends = [
            SimpleNamespace(indices_updater_decode=updater, max_context_len=LIMIT, **fields) for _ in range(3)
        ]


def made(**given):
    steps = object.__new__(Steps)
    one_call.run(INIT, Steps.__init__, FixState(FIX), steps, **given)
    return [getattr(one, "attnfix_drafts", None) for one in steps.attn_backends]


def test_every_step_knows_its_number():
    assert made() == [(1, None), (2, None), (3, None)]


def test_pages_of_several_tokens_are_left_alone_where_lists_hold_tokens():
    assert made(page_size=64) == [None] * 3


def test_lists_that_have_a_buffer_end_at_the_context_length():
    assert made(kv_indices=None) == [(1, LIMIT), (2, LIMIT), (3, LIMIT)]


@pytest.mark.parametrize("name, asked", [
    ("get_parallel", lambda: SimpleNamespace(dcp_enabled=True)), ("dcp_enabled", lambda: True),
])  # fmt: skip
def test_decode_context_parallelism_is_left_alone(monkeypatch, name, asked):
    monkeypatch.setitem(globals(), name, asked)
    assert made() == [None] * 3


def test_an_error_of_the_engine_passes():
    def init_forward_metadata(self, forward_batch):
        raise ValueError("the engine's")

    with pytest.raises(ValueError, match="the engine's"):
        one_call.run(PLAN, init_forward_metadata, FixState(FIX), step(), batch(5))


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
IDLE_PLAN = (
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
    assert max(engine_fork("sglang", release).evaluate(IDLE_PLAN, **ON)) < 0.01
