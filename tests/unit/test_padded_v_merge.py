"""vllm.padded-v-merge without an engine: which merges get packed copies, and what a kernel of one stride makes of them."""

from __future__ import annotations

import one_call
import pytest
import torch
from test_zero_kv_rows import Wrapped

from attnfix.compat.states import PlainCounters
from attnfix.patches import emulators
from attnfix.patches.vllm.padded_v_merge import wrap

TOKENS, HEADS, DIM, PADDED = 5, 3, 8, 12


def parts(*widths):
    """Outputs of two parts, each cut from a buffer with heads of that width, and their LSEs."""
    outs = [torch.randn(TOKENS, HEADS, width)[..., :DIM] for width in widths]
    return outs, [torch.randn(HEADS, TOKENS) for _ in widths]


def named(outs, lses):
    names = ("output", "prefix_output", "prefix_lse", "suffix_output", "suffix_lse")
    return dict(zip(names, (torch.empty(TOKENS, HEADS, DIM), outs[0], lses[0], outs[1], lses[1])))


@pytest.mark.parametrize("widths", [(DIM, PADDED), (PADDED, DIM)])
def test_parts_of_unequal_strides_are_merged_as_they_are(widths):
    outs, lses = parts(*widths)
    kwargs, right = named(outs, lses), torch.empty(TOKENS, HEADS, DIM)
    emulators.merge_attn_states(right, outs[0], lses[0], outs[1], lses[1])
    seen = []

    class Merge(Wrapped):
        def __call__(self, **given):
            seen.append(given)
            emulators.merge_attn_states(**given, one_stride=True)

    wrapped = Merge(None)
    one_call.corrected(wrap.merge_attn_states, wrapped, None, (), kwargs)
    assert torch.equal(kwargs["output"], right) and wrapped.rows == [TOKENS]
    same = [seen[0][name] is kwargs[name] for name in ("prefix_output", "suffix_output")]
    assert same == [width == DIM for width in widths], "what is packed is not copied"
    assert all(seen[0][name] is kwargs[name] for name in ("output", "prefix_lse", "suffix_lse"))


@pytest.mark.parametrize("width", [DIM, PADDED])
def test_parts_of_one_stride_are_left_alone(width):
    kwargs = named(*parts(width, width))
    wrapped = Wrapped("the engine's")
    assert one_call.corrected(wrap.merge_attn_states, wrapped, None, (), kwargs) == "the engine's" and not wrapped.rows


def test_an_error_of_the_engine_passes():
    from types import SimpleNamespace

    def refuses(**kwargs):
        raise ValueError("the engine's")

    state = SimpleNamespace(counters=PlainCounters(), fired=True, confirm=None)
    with pytest.raises(ValueError, match="the engine's"):
        one_call.run(refuses, state, wrap.merge_attn_states, None, (), named(*parts(DIM, PADDED)))
    assert state.counters.corrections == 0
