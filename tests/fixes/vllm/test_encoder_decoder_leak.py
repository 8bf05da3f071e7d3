"""vllm.encoder-decoder-leak without an engine: when outputs are named as free."""

from __future__ import annotations

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.encoder_decoder_leak.fix import FIX
from tests.support import one_call


class Manager:
    """The engine's: gives what was computed since it was asked last."""

    def __init__(self):
        self.freed = []


def get_freed_mm_hashes(self):
    freed, self.freed = self.freed, []
    return freed


def run(*steps):
    """What each step names as free, by what it computes; and corrections."""
    manager, state = Manager(), FixState(FIX)
    ask = one_call.wrapper(one_call.target_of(FIX, "get_freed_mm_hashes"), get_freed_mm_hashes, state).function
    named = []
    for computed in steps:
        manager.freed.extend(computed)
        named.append(ask(manager))
    assert state.armed
    return named, state.counters.corrections


def test_outputs_are_free_a_step_behind_their_own():
    assert run(["a", "b"], ["c"], [], []) == ([[], ["a", "b"], ["c"], []], 3)


def test_an_output_that_is_computed_twice_is_free_twice():
    assert run(["a"], ["a"], []) == ([[], ["a"], ["a"]], 3)


def test_steps_without_outputs_are_left_alone():
    assert run([], [], []) == ([[], [], []], 0)
