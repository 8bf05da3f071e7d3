"""sglang.mamba2-track-tail without an engine: what the layers are given, at capture and replay."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba2_track_tail.fix import FIX
from tests.support import one_call

(TARGET,) = FIX.targets


def hands_out_all(self, forward_batch, in_capture=False):
    tracked = getattr(forward_batch, "mamba_track_indices", None)
    if tracked is not None:
        self.mamba_track_indices_buf[: len(tracked)] = tracked
    self.forward_metadata = SimpleNamespace(mamba_track_indices=None if tracked is None else self.mamba_track_indices_buf)
    return "the engine's"


def prepared(size, tracked, buffer=8, in_capture=False):
    """(what the metadata has, the backend, the state of the fix)"""
    backend = SimpleNamespace(mamba_track_indices_buf=None if buffer is None else torch.zeros(buffer, dtype=torch.int64))
    batch, state = SimpleNamespace(batch_size=size, mamba_track_indices=tracked), FixState(FIX)
    assert one_call.run(TARGET, hands_out_all, state, backend, batch, in_capture=in_capture) == "the engine's"
    return backend.forward_metadata.mamba_track_indices, backend, state


@pytest.mark.parametrize("handed", [3, 8], ids=["slices, as at capture", "all of the runner's buffer, as at replay"])
def test_the_layers_get_a_view_of_the_batch_s_entries(handed):
    found, backend, state = prepared(3, torch.arange(10, 10 + handed), in_capture=handed == 3)
    assert found.tolist() == [10, 11, 12] == found[-3:].tolist()
    assert found.data_ptr() == backend.mamba_track_indices_buf.data_ptr(), "a graph reads what a later replay puts there"
    assert state.counters.corrections == (handed > 3), "a capture has nobody's states"


def test_the_largest_graph_is_left_alone():
    found, backend, state = prepared(8, torch.arange(8))
    assert found is backend.mamba_track_indices_buf and not state.counters.corrections


@pytest.mark.parametrize("buffer", [8, None], ids=["a buffer", "none, as for CPU graphs"])
def test_nothing_is_tracked(buffer):
    found, _, state = prepared(3, None, buffer)
    assert found is None and not state.counters.corrections


def test_a_batch_without_the_attribute():
    backend, state = SimpleNamespace(mamba_track_indices_buf=torch.zeros(8)), FixState(FIX)
    one_call.run(TARGET, hands_out_all, state, backend, SimpleNamespace(batch_size=3))
    assert backend.forward_metadata.mamba_track_indices is None and not state.counters.corrections
