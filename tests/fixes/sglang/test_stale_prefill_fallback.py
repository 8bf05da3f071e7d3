"""sglang.stale-prefill-fallback without an engine: which steps see the last prefill's metadata, and what stays as it was."""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.stale_prefill_fallback.fix import FIX
from tests.support import one_call

Mode = IntEnum("Mode", ["EXTEND", "DECODE", "MIXED", "TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2"])
TARGET = one_call.target_of(FIX, "forward_extend")
FELL_BACK, DID_NOT = (SimpleNamespace(fallback_to_flashinfer_impl=fell) for fell in (True, False))


class Backend:
    """Notes what the engine's forward finds."""

    def __init__(self, left, error=None):
        self.forward_prefill_metadata, self.error, self.found = left, error, []

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        self.found.append(self.forward_prefill_metadata)
        if self.error:
            raise self.error
        return "the engine's"


def arguments(backend, mode):
    return backend, "q", "k", "v", "layer", SimpleNamespace(forward_mode=mode), True


def run(backend, mode):
    state = FixState(FIX)
    assert one_call.run(TARGET, Backend.forward_extend, state, *arguments(backend, mode)) == "the engine's"
    return state


@pytest.mark.parametrize("mode", [Mode.TARGET_VERIFY, Mode.DRAFT_EXTEND, Mode.DRAFT_EXTEND_V2])
def test_a_speculative_step_does_not_see_it(mode):
    backend = Backend(FELL_BACK)
    state = run(backend, mode)
    assert backend.found == [None] and backend.forward_prefill_metadata is FELL_BACK
    assert state.counters.corrections == 1


@pytest.mark.parametrize("mode", [Mode.EXTEND, Mode.MIXED])
def test_a_prefill_does(mode):
    backend = Backend(FELL_BACK)
    assert not run(backend, mode).counters.corrections and backend.found == [FELL_BACK]


@pytest.mark.parametrize("left", [None, DID_NOT])
@pytest.mark.parametrize("mode", Mode)
def test_without_a_fallback_nothing_is_touched(left, mode):
    backend = Backend(left)
    assert not run(backend, mode).counters.corrections
    assert backend.found == [left] and backend.forward_prefill_metadata is left


def test_an_error_of_the_engine_leaves_it_where_it_was():
    backend = Backend(FELL_BACK, MemoryError())
    with pytest.raises(MemoryError):
        run(backend, Mode.TARGET_VERIFY)
    assert backend.forward_prefill_metadata is FELL_BACK


def test_metadata_of_another_form_disarms_the_fix():
    backend, state = Backend(SimpleNamespace()), FixState(FIX)
    wrapper = one_call.wrapper(TARGET, Backend.forward_extend, state)
    assert wrapper.function(*arguments(backend, Mode.TARGET_VERIFY)) == "the engine's"
    assert state.state == "failed" and len(backend.found) == 1


def test_every_layer_is_asked_anew():
    """A prefill between two verifications falls back, the next does not."""
    backend = Backend(FELL_BACK)
    run(backend, Mode.TARGET_VERIFY)
    backend.forward_prefill_metadata = DID_NOT
    run(backend, Mode.TARGET_VERIFY)
    assert backend.found == [None, DID_NOT]
