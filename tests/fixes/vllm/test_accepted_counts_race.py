"""vllm.accepted-counts-race without an engine: where the counts lie when the rows of a batch were moved."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.accepted_counts_race.fix import FIX
from tests.support import one_call

UPDATE = one_call.target_of(FIX, "_update_states")


class OnHost:
    """As up to 0.23.0."""

    def _prepare_inputs(self): ...


class WhereCached:
    """As from 0.24.0."""

    def _prepare_inputs(self):
        needs_cpu_accepted_counts = True
        return needs_cpu_accepted_counts


class Event:
    """The copy of the counts lands when it is waited for."""

    def __init__(self, land=lambda: None):
        self.land, self.waits = land, 0

    def synchronize(self):
        self.waits += 1
        self.land()


def runner(counts, last, cls=OnHost, mode="none", ahead=True, hybrid=True, drafts=True, **more):
    """last: request -> its row in the step before"""
    made = cls()
    batch = SimpleNamespace(num_accepted_tokens_cpu=np.array(counts), prev_req_id_to_index=last, num_reqs=len(counts))
    made.__dict__.update(
        use_async_scheduling=ahead, num_accepted_tokens_event=Event() if drafts else None, input_batch=batch,
        model_config=SimpleNamespace(is_hybrid=hybrid), cache_config=SimpleNamespace(mamba_cache_mode=mode), **more,
    )  # fmt: skip
    return made


def update_in(self, scheduler_output):
    return scheduler_output.move(self)


def update(instance, move, tokens=1):
    """(the counts, corrections, what the caller gets)"""
    state = FixState(FIX)
    state.fired = True
    counts = instance.input_batch.num_accepted_tokens_cpu
    step = SimpleNamespace(total_num_scheduled_tokens=tokens, move=move)
    result = one_call.run(UPDATE, update_in, state, instance, step)
    assert instance.input_batch.num_accepted_tokens_cpu is counts
    return counts.tolist(), state.counters.corrections, result


def swap(self):
    counts = self.input_batch.num_accepted_tokens_cpu
    counts[0], counts[2] = counts[2], counts[0]
    return "result"


def close_a_gap(self):
    counts = self.input_batch.num_accepted_tokens_cpu
    counts[0] = counts[2]
    self.input_batch.prev_req_id_to_index.pop("a")
    counts[2] = 1  # a new request


def append(self):
    self.input_batch.num_accepted_tokens_cpu[2] = 1


def test_counts_stay_where_they_were_copied_to():
    assert update(runner([3, 2, 1], {"a": 0, "b": 1, "c": 2}), swap) == ([3, 2, 1], 1, "result")
    assert update(runner([3, 2, 1], {"a": 0, "b": 1, "c": 2}), close_a_gap)[:2] == ([3, 2, 1], 1)


def test_a_copy_that_lands_while_rows_are_moved_is_not_moved():
    instance = runner([9, 9, 9], {"a": 0, "b": 1, "c": 2})
    memory = instance.input_batch.num_accepted_tokens_cpu

    def lands_between(self):
        memory[:] = [3, 2, 1]
        swap(self)

    assert update(instance, lands_between)[:2] == ([3, 2, 1], 1)


@pytest.mark.parametrize("move", [append, lambda self: None])
def test_where_no_row_of_the_last_step_moves_nothing_is_corrected(move):
    instance = runner([3, 2, 1], {"a": 0, "b": 1})
    assert update(instance, move)[:2] == ([3, 2, 1], 0)
    assert instance.num_accepted_tokens_event.waits == 0


@pytest.mark.parametrize("last", [None, {}])
def test_where_no_request_goes_on_all_counts_are_1_once_the_copy_is_there(last):
    instance = runner([1, 1, 1], last)
    memory = instance.input_batch.num_accepted_tokens_cpu

    def land():
        memory[:2] = [3, 2]

    instance.num_accepted_tokens_event = Event(land)
    assert update(instance, append)[:2] == ([1, 1, 1], 1)
    assert instance.num_accepted_tokens_event.waits == 1


def test_where_they_are_1_it_is_no_correction():
    assert update(runner([1, 1, 1], {}), append)[:2] == ([1, 1, 1], 0)


def test_a_step_without_tokens_waits_for_nothing_and_moves_no_count():
    instance = runner([3, 2, 1], {})
    assert update(instance, swap, tokens=0)[:2] == ([3, 2, 1], 0)
    assert instance.num_accepted_tokens_event.waits == 0


@pytest.mark.parametrize(
    "how",
    [dict(ahead=False), dict(hybrid=False), dict(drafts=False), dict(cls=WhereCached), dict(cls=WhereCached, mode="all")],
    ids=["a step at a time", "no states", "no drafts", "0.24.0 without cached states", "0.24.0, states of all blocks"],
)
def test_where_the_counts_are_not_looked_up_by_old_rows_they_move_along(how):
    assert update(runner([3, 2, 1], {"a": 0, "b": 1, "c": 2}, **how), swap)[:2] == ([1, 2, 3], 0)


def test_a_derived_runner_that_prepares_its_inputs_by_itself_is_left_alone():
    class Derived(OnHost):
        def _prepare_inputs(self): ...

    Derived._prepare_inputs.__module__ = "elsewhere"
    for mode in ("none", "align"):
        assert update(runner([3, 2, 1], {"a": 0, "b": 1, "c": 2}, cls=Derived, mode=mode), swap)[:2] == ([1, 2, 3], 0)


def test_a_request_that_goes_on_from_a_row_that_stayed_is_no_correction():
    assert update(runner([3, 2, 1], {"b": 1}), swap)[:2] == ([3, 2, 1], 0)


def test_mode_align_is_corrected_in_every_release():
    instance = runner([3, 2, 1], {"a": 0, "b": 1, "c": 2}, cls=WhereCached, mode="align")
    assert update(instance, swap)[:2] == ([3, 2, 1], 1)


def test_the_counts_are_back_where_the_engine_fails():
    def fails(self):
        swap(self)
        raise ValueError("the engine's own")

    instance = runner([3, 2, 1], {"a": 0, "b": 1, "c": 2})
    with pytest.raises(ValueError, match="the engine's own"):
        update(instance, fails)
    assert instance.input_batch.num_accepted_tokens_cpu.tolist() == [3, 2, 1]
