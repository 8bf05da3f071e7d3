"""sglang.mamba2-prefill-graph without an engine: where the layer becomes a break, and what a replay runs."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba2_prefill_graph import wrap
from attnfix.patches.sglang.mamba2_prefill_graph.fix import FIX
from tests.support import one_call

ROOM = 6


class Backend:
    """`forward_metadata` is the batch's; a layer writes into `output` how many tokens it was given, and of which batch."""

    def __init__(self):
        self.forward_metadata = metadata(ROOM)


def metadata(prompts, decodes=0):
    return SimpleNamespace(num_prefill_tokens=prompts, num_decodes=decodes)


def engines(self, mixer, hidden_states, output, layer_id, forward_batch, mup_vector=None, use_triton_causal_conv=False):
    if isinstance(forward_batch.error, Exception):
        raise forward_batch.error
    found = hidden_states + forward_batch.adds
    return found if output is None else output.copy_(found)


def batch(mode="EXTEND", adds=1, error=None):
    return SimpleNamespace(forward_mode=SimpleNamespace(name=mode), adds=adds, error=error)


@pytest.fixture
def breaks(monkeypatch):
    """The engine's module of breaks: what is called through `eager_on_graph` runs, and is kept for replays."""
    module, context = ModuleType(wrap.BREAKS), ModuleType(wrap.CONTEXT)
    module._current_capture_var = ContextVar("capture", default=None)
    module.kept = []

    def eager_on_graph(enable):
        def decorated(inner):
            def call(*args):
                capture = module._current_capture_var.get()
                capture._current_graph = None
                result = inner(*args)
                capture._current_graph = object()
                module.kept.append(lambda: inner(*args))
                return result

            return call

        return decorated

    module.eager_on_graph = eager_on_graph
    context.get_tc_piecewise_forward_context = lambda: SimpleNamespace(forward_batch=module.batch)
    monkeypatch.setitem(sys.modules, wrap.BREAKS, module)
    monkeypatch.setitem(sys.modules, wrap.CONTEXT, context)
    return module


def layer(state, backend, forward_batch, output):
    (target,) = FIX.targets
    return one_call.run(target, engines, state, backend, None, torch.ones(ROOM), output, 0, forward_batch=forward_batch)


@pytest.mark.parametrize("output", [torch.zeros(ROOM), None])
def test_a_replay_runs_the_layer_with_its_own_batch(breaks, output):
    state, backend = FixState(FIX), Backend()
    breaks._current_capture_var.set(SimpleNamespace(_current_graph=object()))
    breaks.batch = batch()
    found = layer(state, backend, breaks.batch, output)
    assert (output is None or found is output) and found.tolist() == [2] * ROOM and state.counters.corrections == 1
    breaks.batch, backend.forward_metadata = batch(adds=4), metadata(3, decodes=1)
    (replay,) = breaks.kept
    replay()
    assert found.tolist() == [5, 5, 5, 5, 0, 0]


@pytest.mark.parametrize("capture, mode, output", [
    (None, "EXTEND", torch.zeros(ROOM)),
    (SimpleNamespace(_current_graph=None), "EXTEND", torch.zeros(ROOM)),  # within a break, as NemotronH's layers
    (SimpleNamespace(_current_graph=object()), "DECODE", torch.zeros(ROOM)),
    (SimpleNamespace(_current_graph=object()), "TARGET_VERIFY", torch.zeros(ROOM)),
])  # fmt: skip
def test_elsewhere_the_engine_runs_alone(breaks, capture, mode, output):
    breaks._current_capture_var.set(capture)
    state = FixState(FIX)
    assert layer(state, Backend(), batch(mode), output) is output
    assert not breaks.kept and state.counters.corrections == 0


def test_a_module_that_is_not_loaded_captures_nothing():
    sys.modules.pop(wrap.BREAKS, None)
    state, output = FixState(FIX), torch.zeros(ROOM)
    assert layer(state, Backend(), batch(), output) is output and state.counters.corrections == 0


def test_an_error_of_the_engine_is_the_engines(breaks):
    breaks._current_capture_var.set(SimpleNamespace(_current_graph=object()))
    breaks.batch = batch(error=ValueError("the engine's"))
    with pytest.raises(ValueError, match="the engine's"):
        layer(FixState(FIX), Backend(), breaks.batch, torch.zeros(ROOM))
