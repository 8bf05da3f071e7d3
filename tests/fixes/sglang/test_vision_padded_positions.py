"""sglang.vision-padded-positions without an engine: what a batch's positions are once it is padded."""

from __future__ import annotations

import shlex
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.vision_padded_positions import wrap
from attnfix.patches.sglang.vision_padded_positions.fix import FIX
from tests.support import one_call
from tests.support.deployments import DP, MODELS, SGL

PLACES = torch.tensor([[5, 5], [5, 6], [5, 7]])


def engine(self, model_runner, num_tokens, bs):
    """Pads what it finds, positions of M-RoPE among it."""
    if self.error:
        raise self.error
    grown = {"positions": num_tokens, "req_pool_indices": bs, "mrope_positions": bs}
    for name, size in grown.items():
        if (rows := getattr(self, name)) is not None:
            setattr(self, name, torch.cat([rows, rows.new_zeros(size - len(rows), *rows.shape[1:])]))
    return "padded"


def batch(positions=PLACES, requests=1, error=None, half_of=None):
    known = {"positions": torch.arange(2), "req_pool_indices": torch.arange(requests), "mrope_positions": positions}
    return SimpleNamespace(**known, error=error, tbo_parent_token_range=half_of)


@pytest.fixture(autouse=True)
def groups(monkeypatch):
    """Of ranks that attend to requests of their own."""
    module, found = ModuleType("sglang.srt.layers.dp_attention"), [1]
    module.get_attention_dp_size = lambda: found[0]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def run(one, tokens, requests, state=None):
    """How many corrections were counted."""
    state = state or FixState(FIX)
    assert one_call.run(FIX.targets[0], engine, state, one, None, tokens, requests) == "padded"
    return state.counters.corrections


@pytest.mark.parametrize("tokens, requests", [(2, 1), (4, 2), (4, 3), (4, 4), (2, 4)])
def test_positions_get_a_column_for_each_token_of_padding(tokens, requests):
    one = batch()
    assert run(one, tokens, requests) == 1
    assert one.mrope_positions.tolist() == [[*row, *[0] * (tokens - 2)] for row in PLACES.tolist()]
    assert len(one.positions) == tokens and len(one.req_pool_indices) == requests


def test_a_batch_of_three_without_padding_was_right():
    one = batch(requests=3)
    assert run(one, 2, 3) == 0 and one.mrope_positions.tolist() == PLACES.tolist()


def test_a_batch_without_such_positions_is_left_alone():
    one = batch(positions=None)
    assert run(one, 4, 2) == 0 and one.mrope_positions is None


def test_so_is_half_of_a_batch_which_has_the_positions_of_the_whole():
    one = batch(half_of=(0, 2), requests=3)
    assert run(one, 4, 4) == 0 and one.mrope_positions.shape == (4, 2)


def test_ranks_with_images_of_their_own_are_left_alone_which_is_said(groups):
    groups[0], state, one = 2, FixState(FIX), batch(requests=3)
    assert run(one, 4, 3, state) == 0 and one.mrope_positions.equal(PLACES) and "images" in state.left_out


@pytest.mark.parametrize("launch, corrected", [(DP, False), (SGL + "--tp-size 8 --moe-dense-tp-size 1", True)])
def test_doctor_says_that_it_is_left_alone(launch, corrected):
    line = read(shlex.split(launch))
    rows = doctor.examine(Deployment("sglang", config=MODELS["Qwen-VL"], launch=line, environment={}), "0.5.8")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert (row["verdict"], row["corrected"]) == (HIT, corrected)


def test_an_error_of_the_engine_leaves_the_batch_its_positions():
    one, state = batch(error=ValueError("the engine's")), FixState(FIX)
    with pytest.raises(ValueError, match="the engine's"):
        run(one, 4, 2, state)
    assert one.mrope_positions is PLACES and state.armed


def test_so_does_a_failure_of_the_correction(monkeypatch):
    monkeypatch.setattr(wrap, "padded", lambda *_: 1 / 0)
    one, state = batch(), FixState(FIX)
    assert one_call.wrapper(FIX.targets[0], engine, state).function(one, None, 4, 2) == "padded"
    assert one.mrope_positions is PLACES and not state.armed
