"""sglang.mamba2-initial-state without an engine: which batches are corrected, and who still sees the mask."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba2_initial_state.fix import FIX
from tests.support import one_call

CHUNK = 16
(TARGET,) = FIX.targets


class Metadata:
    """Stands for `Mamba2Metadata`: what it was given."""

    @classmethod
    def prepare_mixed(cls, forward_metadata, chunk_size, forward_batch):
        return SimpleNamespace(cls=cls, before=forward_metadata, chunk_size=chunk_size, batch=forward_batch)


class Backend:
    mamba_chunk_size = CHUNK

    def init_forward_metadata(self, forward_batch):
        before = ("tracks", forward_batch.mamba_track_mask)
        self.forward_metadata = Mamba2Metadata.prepare_mixed(before, self.mamba_chunk_size, forward_batch)  # noqa: F821


ENGINE = FunctionType(
    Backend.init_forward_metadata.__code__,
    {
        "__builtins__": __builtins__,
        "Mamba2Metadata": Metadata,
        "get_global_server_args": lambda: SimpleNamespace(mamba_cache_chunk_size=CHUNK),
    },
)


def batch(cached, new, mask="mask", tokens=1):
    return SimpleNamespace(
        mamba_track_mask=mask, extend_num_tokens=tokens, extend_prefix_lens_cpu=cached, extend_seq_lens_cpu=new, other=object()
    )


def prepared(forward_batch):
    """(what was prepared, the state of the fix)"""
    backend, state = Backend(), FixState(FIX)
    one_call.run(TARGET, ENGINE, state, backend, forward_batch)
    return backend.forward_metadata, state


@pytest.mark.parametrize("cached, new, rows", [([32], [1], 1), ([0, 32, 7], [20, 15, 16], 15), ([0, 5, 5], [3, 4, 2], 6)])
def test_the_prefix_alone_decides_where_one_is_forgotten(cached, new, rows):
    given = batch(cached, new)
    found, state = prepared(given)
    assert found.batch is not given and found.batch.mamba_track_mask is None and found.batch.other is given.other
    assert (found.cls, found.before, found.chunk_size) == (Metadata, ("tracks", "mask"), CHUNK), "the rest is the engine's"
    assert given.mamba_track_mask == "mask", "whoever tracks sees it"
    assert (state.counters.corrections, state.counters.rows) == (1, rows)


@pytest.mark.parametrize(
    "given",
    [
        batch([0, 0], [3, 20]),
        batch([32, 32], [16, 40]),
        batch([32], [1], mask=None),
        batch([32], [1], tokens=None),
        batch(None, None),
        batch([], []),
    ],
    ids=["no prefix", "a chunk or more", "nothing is tracked", "decode or verification", "lengths are not known", "empty"],
)
def test_what_is_right_is_left_alone(given):
    found, state = prepared(given)
    assert found.batch is given and not state.counters.corrections


def test_an_error_of_the_engine_passes(monkeypatch):
    def fails(*_):
        raise ValueError("the engine's")

    monkeypatch.setattr(Metadata, "prepare_mixed", fails)
    given, state = batch([32], [1]), FixState(FIX)
    with pytest.raises(ValueError, match="the engine's"):
        one_call.wrapper(TARGET, ENGINE, state).function(Backend(), given)
    assert state.armed and given.mamba_track_mask == "mask"
