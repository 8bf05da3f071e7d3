"""sglang.mamba-float16-conv without an engine: what is assigned to states of a convolution, and what is left alone."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_float16_conv import wrap
from attnfix.patches.sglang.mamba_float16_conv.fix import FIX
from tests.support import one_call

(TARGET,) = FIX.targets


@dataclass(frozen=True)
class State:
    conv: list[torch.Tensor]
    temporal: torch.Tensor


class Speculative(State):
    pass


def layer(self, *, hidden_states, output=None, layer_cache, metadata):
    self.handed = layer_cache
    if metadata.track_conv_indices is not None:
        layer_cache.conv[0][metadata.slots] = hidden_states[metadata.track_conv_indices]
    return "the engine's"


def saved(model, states, indices=((1, 2),), kind=State):
    """(the states behind the call, the cache, what the engine was handed, the state of the fix)"""
    cache = kind(conv=[torch.zeros(5, 2, 3, dtype=states)[1:], torch.zeros(1)], temporal=torch.zeros(1))
    hidden, mixer, state = torch.tensor([[0.0] * 3, [1.001] * 3, [70.7] * 3]).to(model), SimpleNamespace(), FixState(FIX)
    tracked = None if indices is None else torch.tensor(indices)
    metadata = SimpleNamespace(track_conv_indices=tracked, slots=torch.tensor([3]))
    given = {"hidden_states": hidden, "layer_cache": cache, "metadata": metadata}
    assert one_call.run(TARGET, layer, state, mixer, **given) == "the engine's"
    return cache.conv[0], cache, mixer.handed, state


@pytest.mark.parametrize("kind", [State, Speculative])
@pytest.mark.parametrize(
    ("model", "states"),
    [(torch.float16, torch.bfloat16), (torch.float16, torch.float32), (torch.bfloat16, torch.float16), (torch.float32,) * 2],
)
def test_what_is_saved(model, states, kind):
    found, cache, handed, state = saved(model, states, kind=kind)
    assert torch.equal(found[3, :, 0], torch.tensor([1.001, 70.7]).to(model).to(states)) and not found[:3].any()
    assert isinstance(handed, kind) and handed.conv[1] is cache.conv[1] and handed.temporal is cache.temporal
    assert state.counters.corrections == int(model != states)


@pytest.mark.parametrize(
    ("model", "indices"), [(torch.bfloat16, ((1, 2),)), (torch.float16, None)], ids=["the same dtype", "nothing is saved"]
)
def test_what_is_left_alone(model, indices):
    _, cache, handed, state = saved(model, torch.bfloat16, indices)
    assert handed is cache and not state.counters.corrections


def test_what_is_computed_from_the_states_is_a_plain_tensor():
    states = torch.zeros(4, 3, dtype=torch.bfloat16)
    view = wrap.converting(states)
    assert type(view[1:]) is type(view.transpose(0, 1)) is type(view + 1) is torch.Tensor
    assert view.data_ptr() == states.data_ptr() and view.stride() == states.stride()
