"""sglang.qwen35-mrope without an engine: which batches get a table of their own, and what a layer is left with."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.qwen35_mrope import wrap
from attnfix.patches.sglang.qwen35_mrope.fix import FIX
from tests.support import one_call

IMAGE = object()
#: Of two tokens: time, height and width
PLACES = torch.tensor([[5, 5], [5, 6], [5, 7]])


class Rotary(torch.nn.Module):
    """The table holds the position at each of 8 lanes, negative where it stands for a sine."""

    def __init__(self, **changes):
        super().__init__()
        given = {"mrope_section": [2, 1, 1], "mrope_interleaved": True, "mrope_interleaved_glm": False, "rotary_dim": 8}
        vars(self).update(given | changes)
        place = torch.arange(10.0)[:, None].expand(-1, 4)
        self.register_buffer("cos_sin_cache", torch.cat([place, -place], 1))


class Layer(torch.nn.Module):
    attn_output_gate = True

    def __init__(self, rotary):
        super().__init__()
        self.rotary_emb = rotary

    def self_attention(self, positions, hidden_states, forward_batch):
        """Rows of the table, as the engine's kernel reads them."""
        if forward_batch.error:
            raise forward_batch.error
        return hidden_states + self.rotary_emb.cos_sin_cache[positions.reshape(-1)[: len(hidden_states)]]


class Heir(Layer):
    def self_attention(self, positions, hidden_states, forward_batch):
        return -super().self_attention(positions, hidden_states, forward_batch)


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch):
    module = ModuleType(wrap.QWEN)
    module._is_cuda = True
    monkeypatch.setitem(sys.modules, wrap.QWEN, module)
    return module


def built(state, kind=Layer, **rotary):
    layer = object.__new__(kind)
    one_call.run(one_call.target_of(FIX, "__init__"), Layer.__init__, state, layer, Rotary(**rotary))
    return layer


def batch(images=None, prompts=True, error=None):
    mode = SimpleNamespace(is_extend_or_draft_extend_or_mixed=lambda: prompts)
    return SimpleNamespace(mm_inputs=images, forward_mode=mode, error=error)


def rows(layer, positions, forward_batch):
    return layer.self_attention(positions=positions, hidden_states=torch.zeros(2, 8), forward_batch=forward_batch)


#: Lanes 0 and 3 rotate by time, 1 by height, 2 by width
RIGHT = [[5, 5, 5, 5, -5, -5, -5, -5], [5, 6, 7, 5, -5, -6, -7, -5]]
STOCK = [[5] * 4 + [-5] * 4] * 2


@pytest.mark.parametrize("images", [None, [IMAGE], [None, IMAGE]])
def test_each_lane_rotates_by_its_position(images):
    state = FixState(FIX)
    layer = built(state)
    assert rows(layer, PLACES, batch(images)).tolist() == RIGHT and state.counters.corrections == bool(images)
    assert "rotary_emb" not in vars(layer) and isinstance(layer.rotary_emb, Rotary)
    assert layer.rotary_emb.cos_sin_cache[7].tolist() == [7] * 4 + [-7] * 4


@pytest.mark.parametrize("positions, forward_batch", [
    (PLACES, batch([None, None])),  # text alone
    (PLACES, batch(prompts=False)),  # decode, also while its graph is captured
    (PLACES[0], batch()),  # models of text
    (PLACES[:, :1].expand(3, 1), batch()),  # rows of padding have no position
])  # fmt: skip
def test_elsewhere_the_engine_runs_alone(positions, forward_batch):
    state = FixState(FIX)
    assert rows(built(state), positions, forward_batch).tolist() == STOCK and state.counters.corrections == 0


@pytest.mark.parametrize("changes", [
    {"mrope_interleaved": False}, {"mrope_interleaved_glm": True}, {"mrope_section": None},
])  # fmt: skip
def test_lanes_in_another_order_are_left_alone(changes):
    assert "self_attention" not in vars(built(FixState(FIX), **changes))


def test_other_gpus_are_left_alone(on_cuda):
    on_cuda._is_cuda = False
    assert "self_attention" not in vars(built(FixState(FIX)))


def test_a_model_with_attention_of_its_own_keeps_it():
    assert rows(built(FixState(FIX), Heir), PLACES, batch()).tolist() == (-torch.tensor(RIGHT)).tolist()


def test_an_error_of_the_engine_is_the_engines_and_the_layer_is_as_before():
    state = FixState(FIX)
    layer = built(state)
    with pytest.raises(ValueError, match="the engine's"):
        rows(layer, PLACES, batch(error=ValueError("the engine's")))
    assert state.armed and "rotary_emb" not in vars(layer) and rows(layer, PLACES, batch()).tolist() == RIGHT


def test_a_failure_of_ours_leaves_the_engines_result_and_gives_the_fix_up(monkeypatch):
    monkeypatch.setattr(wrap, "cos_sin", lambda *_: 1 / 0)
    state = FixState(FIX)
    assert rows(built(state), PLACES, batch()).tolist() == STOCK and not state.armed


def test_a_compiler_sees_the_engines_layer_as_one_graph():
    state = FixState(FIX)
    layer, forward_batch = built(state), batch()
    compiled = torch.compile(lambda: rows(layer, PLACES, forward_batch), backend="eager", fullgraph=True)
    assert compiled().tolist() == STOCK and state.counters.corrections == 0
