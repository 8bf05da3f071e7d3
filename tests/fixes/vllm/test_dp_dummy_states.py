"""vllm.dp-dummy-states without an engine: a call that is corrected, and one that is left alone."""

from __future__ import annotations

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dp_dummy_states.fix import FIX
from tests.support import one_call


def run(function, *arguments):
    """What the caller gets, and how many corrections were counted."""
    state = FixState(FIX)
    result = one_call.run(one_call.target_of(FIX, "execute_dummy_batch"), function, state, *arguments)
    return result, state.counters.corrections


def engines(self):  # FILL IN: the engine's parameters, and what it returns
    return None


def test_a_call_with_the_bug_is_corrected_and_another_one_left_alone():
    assert run(engines, "FILL IN") == (None, 1)
    assert run(engines, "FILL IN") == (None, 0)
