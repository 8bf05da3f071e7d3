"""What the engine calls of a correction fails: the engine's own kernel gets the same arguments, and the fix is given up."""

from __future__ import annotations

from types import FunctionType

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fa3_mla_tree_pages import wrap as tree_pages
from attnfix.patches.sglang.fa3_tree_sinks import wrap as tree_sinks
from attnfix.patches.sglang.mamba2_h_grid import wrap as h_grid
from attnfix.patches.sglang.mamba2_initial_state import wrap as initial_state
from attnfix.patches.sglang.triton_tree_window import wrap as tree_window
from tests.fixes.sglang import (
    test_fa3_mla_tree_pages,
    test_fa3_tree_sinks,
    test_mamba2_h_grid,
    test_mamba2_initial_state,
    test_triton_tree_window,
)
from tests.support import one_call


@pytest.fixture
def failing(monkeypatch):
    """`failing(module, name)`: this part of a correction raises."""

    def fails(*args, **kwargs):
        raise ValueError("ours")

    return lambda module, name: monkeypatch.setattr(module, name, fails)


def given_up(run, *args, **kwargs):
    """The fix is given up, and nothing is raised: `one_call.run` says so where its call is through."""
    with pytest.raises(AssertionError, match="ours"):
        run(*args, **kwargs)


def test_pages_of_a_tree(failing):
    failing(tree_pages, "slots")
    backend = test_fa3_mla_tree_pages.Backend()
    given_up(test_fa3_mla_tree_pages.run, backend)
    launches = test_fa3_mla_tree_pages.LAUNCHES
    assert len(launches) == 2 and all(test_fa3_mla_tree_pages.same(launch, backend.caches) for launch in launches)


@pytest.mark.parametrize("name", ["forward_extend", "forward_decode"])
def test_sinks_of_a_tree(failing, name):
    failing(tree_sinks, "is_first_pass")
    given_up(test_fa3_tree_sinks.run, name, test_fa3_tree_sinks.Backend())
    sinks = test_fa3_tree_sinks.SINKS
    assert [given for _, given in test_fa3_tree_sinks.LAUNCHES] == [sinks, sinks]


def test_the_window_of_a_tree(failing):
    failing(tree_window, "by_mask")
    backend = test_triton_tree_window.Backend()
    given_up(test_triton_tree_window.run, backend)
    ((args, launch),) = test_triton_tree_window.LAUNCHES
    assert args[9] is backend.forward_metadata.custom_mask and launch["sliding_window_size"] == test_triton_tree_window.WINDOW


def test_metadata_without_a_mask(failing):
    failing(initial_state, "without_mask")
    given, state = test_mamba2_initial_state.batch([32], [1]), FixState(test_mamba2_initial_state.FIX)
    backend = test_mamba2_initial_state.Backend()
    given_up(one_call.run, test_mamba2_initial_state.TARGET, test_mamba2_initial_state.ENGINE, state, backend, given)
    assert backend.forward_metadata.batch is given and not state.counters.corrections


def test_states_between_chunks(failing):
    failing(h_grid, "states_between")
    scans, state = test_mamba2_h_grid.scans, FixState(test_mamba2_h_grid.FIX)
    names = {**vars(test_mamba2_h_grid), "chunk_state_varlen": lambda *args, **more: torch.ones(2, 1)}
    engine = FunctionType(scans.__code__, names, "scans", scans.__defaults__)
    seq_idx = torch.zeros(1)
    setattr(seq_idx, h_grid._BETWEEN, h_grid.Between(torch.tensor([6, 22]), torch.tensor([1])))
    wrapper = one_call.wrapper(test_mamba2_h_grid.SCAN, engine, state)
    results = wrapper.function("x", seq_idx=seq_idx)
    assert state.state == "failed" and not results[3].any() and results[5].equal(torch.ones(2, 1))
