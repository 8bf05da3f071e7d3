"""sglang.preempted-twice-freed without an engine: which requests of the running batch may be preempted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.preempted_twice_freed.fix import FIX
from tests.support import one_call

HIGH_FIRST, LOW_FIRST = (SimpleNamespace(schedule_low_priority_values_first=low) for low in (False, True))


class Request:
    def __init__(self, ended, priority=0):
        self.finished, self.priority = lambda: ended, priority


def preempt_to_schedule(self, req, server_args):
    """As the engine: all that are not in the list."""
    self.preempt_list.extend([one for one in self.running_batch.reqs if one not in self.preempt_list])
    return True


@pytest.mark.parametrize("ended, preempted, corrections", [
    ((False, True, False), (0, 2), 1), ((False, False), (0, 1), 0), ((True, True), (), 1), ((), (), 0),
])  # fmt: skip
def test_requests_that_have_ended_are_passed_over(ended, preempted, corrections):
    requests, before = [Request(one) for one in ended], Request(False)
    listed = [before]
    adder = batch_of(requests, listed)
    state = FixState(FIX)
    assert one_call.run(FIX.targets[0], preempt_to_schedule, state, adder, Request(False, 9), HIGH_FIRST)
    assert adder.preempt_list is listed and listed == [before, *(requests[at] for at in preempted)]
    assert state.counters.corrections == corrections


def batch_of(requests, listed):
    return SimpleNamespace(
        preempt_list=listed, running_batch=SimpleNamespace(reqs=requests), priority_scheduling_preemption_threshold=2
    )


@pytest.mark.parametrize("priority, args, corrections", [
    (9, HIGH_FIRST, 1), (2, HIGH_FIRST, 0), (-9, HIGH_FIRST, 0), (-9, LOW_FIRST, 1), (-2, LOW_FIRST, 0), (9, LOW_FIRST, 0),
])  # fmt: skip
def test_requests_that_are_not_far_behind_need_no_correction(priority, args, corrections):
    state = FixState(FIX)
    one_call.run(FIX.targets[0], preempt_to_schedule, state, batch_of([Request(True)], []), Request(False, priority), args)
    assert state.counters.corrections == corrections


def test_the_list_is_the_engines_again_where_it_raises():
    listed = [Request(False)]
    adder, state = batch_of([Request(True)], listed), FixState(FIX)
    function = one_call.wrapper(FIX.targets[0], raising, state).function
    with pytest.raises(KeyError):
        function(adder, Request(False, 9), HIGH_FIRST)
    assert adder.preempt_list is listed and len(listed) == 1


def raising(self, req, server_args):
    raise KeyError
