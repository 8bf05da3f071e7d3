"""The base of an LSE: judged from one row, converted where it is 2, left alone where nobody can tell."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from attnfix.compat.status import messages
from attnfix.compat.status.fix_state import INSTALLED, FixState
from attnfix.patches.lab.emulators import attention
from attnfix.patches.sglang.lse_log_base.fix import FIX
from attnfix.patches.shared import lse_base
from tests.support import one_call

PATH = "a kernel", "prefix"


@pytest.fixture
def state():
    state = FixState(FIX, on_event=messages.tell)
    state.settle(INSTALLED, "for a test")
    state.counters.calls = 1
    return state


def forward(self, q, k, v, layer, forward_batch):
    """Has the parameters of the engine's function; nobody calls it."""


def convert(state, lse, row):
    lse_base.to_natural(one_call.link(one_call.target_of(FIX, "forward"), forward, state), PATH, lse, row)
    return lse


@pytest.mark.parametrize(
    ("natural", "base", "needed"),
    [(5, 2, True), (5, math.e, False), (-3, 2, True), (-3, math.e, False), (1.1, 2, True), (5, 10, None), (80, 2, True)],
)
def test_a_base_is_recognised_through_rounding(natural, base, needed):
    for rounding in (-0.01, 0.0, 0.01):
        assert lse_base.judge(natural / math.log(base) + rounding, natural).needed is needed


def test_base_2_is_converted_in_place_and_once(state):
    lse = torch.tensor([[3.0, -math.inf]])
    kept = lse.data_ptr()
    convert(state, lse, lambda: (3.0, 3.0 * math.log(2)))
    assert lse.data_ptr() == kept and torch.allclose(lse, torch.tensor([[3 * math.log(2), -math.inf]]))
    convert(state, lse, pytest.fail)  # through a second target
    assert lse[0, 0] == pytest.approx(3 * math.log(2))
    convert(state, torch.ones(1), pytest.fail)  # the path is known now: no row is looked at
    assert state.counters.corrections == 2
    assert state.state == "effective" and "a kernel prefix: LSE in base 2" in state.as_dict()["reason"]


def test_a_natural_lse_is_nothing_to_do(state):
    lse = convert(state, torch.tensor([3.0]), lambda: (3.0, 3.01))
    assert lse.item() == 3 and state.counters.corrections == 0
    assert state.state == "fixed upstream"
    state.found(("another kernel",), lse_base.judge(3.0, 3.0 * math.log(2)))
    assert state.state == "effective", "one kernel is enough"


def test_neither_base_is_left_alone_aloud(state, monkeypatch):
    said = []
    monkeypatch.setattr(messages, "warn", lambda engine, message, state: said.append(message))
    lse = convert(state, torch.tensor([7.0]), lambda: (7.0, 3.0))
    assert lse.item() == 7 and state.counters.corrections == 0 and state.state == "unknown source"
    assert len(said) == 1 and "neither base: 7 where 3 is natural" in said[0]
    convert(state, lse, pytest.fail)
    assert len(said) == 1


@pytest.mark.parametrize("seen", [None, (0.9 / math.log(2), 0.9), (math.inf, 3.0), (3.0, math.nan)])
def test_what_cannot_be_told_is_asked_again(state, seen):
    assert convert(state, torch.tensor([3.0]), lambda: seen).item() == 3
    assert not state.observations and state.state == "effective"
    assert convert(state, torch.tensor([3.0]), lambda: (3.0, 3 * math.log(2))).item() == pytest.approx(3 * math.log(2))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_row_is_computed_as_the_kernel_does(causal, kv_heads):
    torch.manual_seed(0)
    q_lens = [3, 0, 5, 40]
    kv_lens = q_lens if causal else [0, 7, 20, 300]
    q_at, kv_at = ([0, *torch.tensor(lens).cumsum(0).tolist()] for lens in (q_lens, kv_lens))
    q, k = torch.randn(q_at[-1], 4, 16).bfloat16(), torch.randn(kv_at[-1], kv_heads, 16).bfloat16()
    wide = k.repeat_interleave(4 // kv_heads, 1)
    lse = torch.full((q_at[-1], 4), -math.inf)
    for b in range(4):
        rows, keys = slice(q_at[b], q_at[b + 1]), wide[kv_at[b] : kv_at[b + 1]]
        lse[rows] = attention(q[rows], keys, keys, 0.25, causal)[1].float()
    returned, natural = lse_base.one_row(q, k, lse, q_at, kv_at, 0.25)
    assert returned == pytest.approx(natural, rel=1e-4) and math.isfinite(natural)
    lse[:3] = 1e6  # a kernel leaves what it likes in rows without KV
    if not causal:
        assert lse_base.one_row(q, k, lse, q_at, kv_at, 0.25) == (returned, natural)


def test_many_keys_are_taken_in_pieces(monkeypatch):
    torch.manual_seed(0)
    q, k, lse = torch.randn(1, 2, 8), torch.randn(100, 2, 8), torch.tensor([[1.0, -9.0]])
    whole = lse_base.one_row(q, k, lse, [0, 1], [0, 100], 1.0)
    monkeypatch.setattr(lse_base, "_KEYS", 7)
    assert lse_base.one_row(q, k, lse, [0, 1], [0, 100], 1.0) == pytest.approx(whole)
    assert whole[0] == -9.0, "the head with the largest LSE is the one looked at"


def test_without_keys_there_is_no_row():
    nothing = torch.zeros(0, 2, 8)
    assert lse_base.one_row(nothing, nothing, torch.zeros(0, 2), [0, 0], [0, 0], 1.0) is lse_base.NOTHING


def test_independent_targets_arm_one_by_one(engine):
    from attnfix.compat.arming.activation import Activation

    engine.fix = replace(engine.fix, independent=True)
    activation = Activation([engine.fix])
    state = activation.states[engine.fix.id]
    backend = engine.load(activation, "attention").Backend()
    assert state.state == "installed" and backend.forward(1) == 102
    assert engine.load(activation, "planning").plan(1) == 1002
    assert len(state.patch_points) == 2


OTHER = "a kernel", "new tokens"
UNCLEAR = (0.5, 0.5)


def asked(state, calls, other=None):
    """How many rows of `calls` calls are looked at, none of which shows anything; and the LSE of 3 that the last one leaves."""
    rows, link = [], one_call.link(one_call.target_of(FIX, "forward"), forward, state)
    for _ in range(calls):
        lse = torch.tensor([3.0])
        lse_base.to_natural(link, PATH, lse, lambda: rows.append(PATH) or UNCLEAR, other)
    return len(rows), lse.item()


def test_looks_that_show_nothing_come_to_an_end_aloud(state, monkeypatch):
    said = []
    monkeypatch.setattr(messages, "warn", lambda engine, message, state: said.append(message))
    rows, left = asked(state, 3000)
    assert 100 < rows < 3000 and left == 3 and state.state == "unknown source" and PATH in state.left_alone
    assert len(said) == 1 and f"{rows} rows" in said[0]


@pytest.mark.parametrize("base_2", [True, False])
def test_a_half_that_never_tells_goes_by_the_other_for_good(state, base_2):
    state.found(OTHER, lse_base.judge(3.0, 3.0 * math.log(2) if base_2 else 3.0))
    rows, left = asked(state, 3000, OTHER)
    assert rows < 3000 and left == pytest.approx(3 * math.log(2) if base_2 else 3)
    assert state.observations[PATH].needed is base_2 and (PATH in state.left_alone) is not base_2
    assert state.counters.corrections == (3000 if base_2 else 0)


def test_calls_with_no_row_are_no_looks(state):
    """Told on the host, for nothing: a rank may hold no context for days."""
    link = one_call.link(one_call.target_of(FIX, "forward"), forward, state)
    for _ in range(3000):
        lse_base.to_natural(link, PATH, torch.tensor([3.0]), lambda: None)
    assert not state.observations and not state.left_alone
