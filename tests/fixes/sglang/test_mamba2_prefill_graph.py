"""sglang.mamba2-prefill-graph without an engine: where the layer becomes a break, and what a replay runs."""

from __future__ import annotations

import gc
import sys
import weakref
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba2_prefill_graph import wrap
from attnfix.patches.sglang.mamba2_prefill_graph.fix import FIX
from tests.support import one_call

ROOM = 6


class Mamba2AttnBackend:
    """`forward_metadata` is the batch's; a layer writes into `output` what its batch adds."""

    def __init__(self):
        self.forward_metadata, self.runs = metadata(ROOM), 0

    def forward(self, mixer, hidden_states, output, layer_id, forward_batch, mup_vector=None, use_triton_causal_conv=False):
        self.runs += 1
        if forward_batch.error:
            raise forward_batch.error
        found = hidden_states + forward_batch.adds
        return found if output is None else output.copy_(found)


class Heir(Mamba2AttnBackend):
    pass


def metadata(prompts, decodes=0):
    return SimpleNamespace(num_prefill_tokens=prompts, num_decodes=decodes)


class Batch(SimpleNamespace):
    pass


def batch(mode="EXTEND", adds=1, error=None):
    return Batch(forward_mode=SimpleNamespace(name=mode), adds=adds, error=error)


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


def capture(self, shape_key, forward_fn):
    return forward_fn()


def captured(state, backend, forward_batch, output):
    """What a model gets of a layer while the engine captures a graph."""
    graphs = SimpleNamespace(_model_runner=SimpleNamespace(attn_backend=SimpleNamespace(linear_attn_backend=backend)))
    run = lambda: backend.forward(None, torch.ones(ROOM), output, layer_id=0, forward_batch=forward_batch)  # noqa: E731
    (target,) = FIX.targets
    found = one_call.run(target, capture, state, graphs, "shape", run)
    assert "forward" not in vars(backend)
    return found


@pytest.mark.parametrize("output", [torch.zeros(ROOM), None])
def test_a_replay_runs_the_layer_with_its_own_batch(breaks, output):
    state, backend = FixState(FIX), Mamba2AttnBackend()
    breaks._current_capture_var.set(SimpleNamespace(_current_graph=object()))
    breaks.batch = batch()
    found = captured(state, backend, breaks.batch, output)
    assert (output is None or found is output) and found.tolist() == [2] * ROOM and state.counters.corrections == 1
    breaks.batch, backend.forward_metadata = batch(adds=4), metadata(3, decodes=1)
    (replay,) = breaks.kept
    replay()
    assert found.tolist() == [5, 5, 5, 5, 0, 0]


@pytest.mark.parametrize("gives", [True, False])
def test_a_break_holds_no_tensor_of_the_capture(breaks, gives):
    """The engine keeps their addresses alone: memory of each layer at each size would else be there once more."""
    kept = []
    breaks.eager_on_graph = lambda enable: lambda inner: lambda *args: kept.append(inner) or inner(*args)
    breaks._current_capture_var.set(SimpleNamespace(_current_graph=object()))
    breaks.batch = batch()
    output = torch.zeros(ROOM) if gives else None
    found = captured(FixState(FIX), Mamba2AttnBackend(), breaks.batch, output)
    alive = weakref.ref(found), weakref.ref(breaks.batch)
    del found, output, breaks.batch
    gc.collect()
    assert kept and [one() for one in alive] == [None, None]


@pytest.mark.parametrize("capture, mode", [
    (None, "EXTEND"),
    (SimpleNamespace(_current_graph=None), "EXTEND"),  # within a break, as NemotronH's layers
    (SimpleNamespace(_current_graph=object()), "DECODE"),
    (SimpleNamespace(_current_graph=object()), "TARGET_VERIFY"),
])  # fmt: skip
def test_elsewhere_the_engine_runs_alone(breaks, capture, mode):
    breaks._current_capture_var.set(capture)
    state, output = FixState(FIX), torch.zeros(ROOM)
    assert captured(state, Mamba2AttnBackend(), batch(mode), output) is output
    assert not breaks.kept and state.counters.corrections == 0


def test_a_backend_that_was_not_read_is_left_alone(breaks):
    breaks._current_capture_var.set(SimpleNamespace(_current_graph=object()))
    state, output = FixState(FIX), torch.zeros(ROOM)
    assert captured(state, Heir(), batch(), output) is output and not breaks.kept


def test_an_error_of_the_engine_is_the_engines_and_its_layer_runs_once(breaks):
    breaks._current_capture_var.set(SimpleNamespace(_current_graph=object()))
    breaks.batch, backend = batch(error=ValueError("the engine's")), Mamba2AttnBackend()
    with pytest.raises(ValueError, match="the engine's"):
        captured(FixState(FIX), backend, breaks.batch, torch.zeros(ROOM))
    assert backend.runs == 1
