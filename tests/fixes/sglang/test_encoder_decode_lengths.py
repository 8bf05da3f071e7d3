"""sglang.encoder-decode-lengths without an engine: when the host's lengths are withheld, and what nobody may touch."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.encoder_decode_lengths.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

NAMES = ("req_pool_indices", "seq_lens", "seq_lens_cpu", "seq_lens_sum", "decode_wrappers", "encoder_lens", "spec_info")
TARGET = one_call.target_of(FIX, "update_cross_attention")


class Updater:
    """Returns what the engine sees, by name."""

    def __init__(self, error=None):
        self.error = error

    def update_cross_attention(
        self, req_pool_indices, seq_lens, seq_lens_cpu, seq_lens_sum, decode_wrappers, encoder_lens, spec_info
    ):
        if self.error:
            raise self.error
        return locals()


def fast_plan(wrapper):
    return "planned"


def wrappers(replayed):
    made = [SimpleNamespace(begin_forward=lambda: None) for _ in range(2)]
    for wrapper in made if replayed else ():
        wrapper.begin_forward = partial(fast_plan, wrapper)
    return made


def arguments(decode_wrappers, lens):
    return dict.fromkeys(NAMES, object()) | {"seq_lens_cpu": lens, "decode_wrappers": decode_wrappers}


def call(decode_wrappers, lens, error=None):
    """(what the engine saw, what it was given, the fix's state) of a call."""
    given, state = arguments(decode_wrappers, lens), FixState(FIX)
    with NoSync():
        seen = one_call.run(TARGET, Updater.update_cross_attention, state, Updater(error), *given.values())
    return seen, given, state


def test_a_replay_is_planned_without_the_hosts_lengths():
    seen, given, state = call(wrappers(True), torch.tensor([3, 4, 5]))
    assert seen["seq_lens_cpu"] is None
    assert all(seen[name] is given[name] for name in NAMES if name != "seq_lens_cpu")
    assert (state.counters.corrections, state.counters.rows) == (1, 3)


@pytest.mark.parametrize("replayed, lens", [(False, torch.tensor([3, 4])), (True, None), (False, None)])
def test_others_pass_untouched(replayed, lens):
    """FlashInfer's own plan, without a graph and at capture; and lengths that are on the GPU alone."""
    seen, given, state = call(wrappers(replayed), lens)
    assert all(seen[name] is given[name] for name in NAMES) and not state.counters.corrections


def test_an_error_of_the_engine_passes():
    with pytest.raises(MemoryError):
        call(wrappers(True), torch.tensor([1]), MemoryError())


def test_wrappers_of_another_shape_leave_the_engine_as_it_is():
    """With one wrapper alone there is no cross attention to plan: the correction gives up, aloud, and changes nothing."""
    given, state = arguments(wrappers(True)[:1], torch.tensor([1])), FixState(FIX)
    seen = one_call.wrapper(TARGET, Updater.update_cross_attention, state).function(Updater(), *given.values())
    assert seen["seq_lens_cpu"] is given["seq_lens_cpu"]
    assert state.state == "failed" and "IndexError" in state.reason
