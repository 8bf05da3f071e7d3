"""sglang.fa3-dp-padding without an engine: which rows of an output are cleared, and which calls are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fa3_dp_padding import wrap
from attnfix.patches.sglang.fa3_dp_padding.fix import FIX
from tests.support import one_call

ROWS = 8


def engine(self, q, k, v, layer, forward_batch, save_kv_cache=True):
    out, lse = torch.full((ROWS, 6), torch.nan), torch.full((ROWS, 2), torch.nan)
    out[: forward_batch.real], lse[: forward_batch.real] = 1, 2
    return (out, lse) if forward_batch.lse else out


def run(lens, verify=False, lse=False, target=FIX.targets[0], **known):
    """(parts of the result, how many corrections were counted)"""
    mode = SimpleNamespace(is_target_verify=lambda: verify)
    real = sum(lens) if isinstance(lens, list) else 5
    batch = SimpleNamespace(forward_mode=mode, extend_seq_lens_cpu=lens, real=real, lse=lse, **known)
    state = FixState(FIX)
    result = one_call.run(target, engine, state, None, torch.zeros(ROWS, 6), None, None, None, batch)
    return result if lse else (result,), state.counters.corrections


@pytest.mark.parametrize("target", FIX.targets)
@pytest.mark.parametrize("lens", [[2, 3], torch.tensor([2, 3])])
@pytest.mark.parametrize("known", [{}, {"num_token_non_padded_cpu": 5}, {"global_num_token_non_padded_cpu": 0}])
def test_rows_behind_the_requests_are_cleared(target, lens, known):
    (out,), corrections = run(lens, target=target, **known)
    assert (out[:5] == 1).all() and (out[5:] == 0).all() and corrections == 1


def test_so_are_those_of_the_lse():
    (out, lse), _ = run([5], lse=True)
    assert (out[5:] == 0).all() and (lse[:5] == 2).all() and (lse[5:] == 0).all()


@pytest.mark.parametrize(
    "lens, known",
    [
        ([5, 3], {}),
        ([5], {"verify": True}),
        ([5], {"num_token_non_padded_cpu": ROWS}),  # tokens that the lengths do not count
        (None, {}),
        ([], {}),
        ([9, 9], {}),  # a part of a batch, under context parallelism
    ],
)
def test_other_calls_are_left_alone(lens, known):
    assert run(lens, **known)[1] == 0


def test_the_larger_of_two_counts_is_taken():
    (out,), _ = run([5], num_token_non_padded_cpu=7)
    assert out[5:7].isnan().all() and (out[7:] == 0).all()


def test_launches_that_a_graph_records_stay(monkeypatch):
    monkeypatch.setattr(wrap, "_captured", lambda q: True)
    assert run([5])[1] == 0
