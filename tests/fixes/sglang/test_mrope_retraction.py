"""sglang.mrope-retraction without an engine: which requests get positions for their answers, and which are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mrope_retraction.fix import FIX
from tests.support import one_call

#: Of a prompt of five tokens, the middle ones an image
PLACES = torch.tensor([[0, 1, 1, 1, 3], [0, 1, 1, 2, 3], [0, 1, 2, 1, 3]])
ANSWER = [[4, 5]] * 3


def engine(self, tree_cache=None):
    return self.multimodal_inputs and self.multimodal_inputs.mrope_positions


def request(answer=2, retracted=True, places=PLACES, images=True):
    known = SimpleNamespace(mrope_positions=places) if images else None
    tokens = {"origin_input_ids": [7] * 5, "output_ids": [8] * answer}
    return SimpleNamespace(multimodal_inputs=known, is_retracted=retracted, **tokens)


def run(one, state):
    return one_call.run(FIX.targets[0], engine, state, one)


def test_an_answer_goes_on_behind_the_largest_position():
    one, state = request(), FixState(FIX)
    found = run(one, state)
    assert found[:, :5].equal(PLACES) and found[:, 5:].tolist() == ANSWER and found.dtype == PLACES.dtype
    assert run(one, state).equal(found) and state.counters.corrections == 1  # it did not fit the first time
    one.output_ids += [8]
    assert run(one, state)[:, 5:].tolist() == [[4, 5, 6]] * 3 and state.counters.corrections == 2


@pytest.mark.parametrize("one", [
    request(answer=0), request(retracted=False), request(images=False), request(places=None),
    request(places=torch.arange(9).expand(3, -1)),
])  # fmt: skip
def test_other_requests_are_left_alone(one):
    state, before = FixState(FIX), one.multimodal_inputs and one.multimodal_inputs.mrope_positions
    assert run(one, state) is before and state.counters.corrections == 0
