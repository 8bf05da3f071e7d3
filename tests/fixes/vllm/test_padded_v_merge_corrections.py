"""vllm.padded-v-merge without an engine: which merges get packed copies, and what a kernel of one stride makes of them."""

from __future__ import annotations

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.lab import emulators
from attnfix.patches.vllm.padded_v_merge.fix import FIX
from tests.support import one_call

(TARGET,) = FIX.targets
TOKENS, HEADS, DIM, PADDED = 5, 3, 8, 12


def parts(*widths):
    """Outputs of two parts, each cut from a buffer with heads of that width, and their LSEs."""
    outs = [torch.randn(TOKENS, HEADS, width)[..., :DIM] for width in widths]
    return outs, [torch.randn(HEADS, TOKENS) for _ in widths]


def named(outs, lses):
    names = ("output", "prefix_output", "prefix_lse", "suffix_output", "suffix_lse")
    return dict(zip(names, (torch.empty(TOKENS, HEADS, DIM), outs[0], lses[0], outs[1], lses[1])))


def fresh():
    state = FixState(FIX)
    state.fired = True
    return state


@pytest.mark.parametrize("widths", [(DIM, PADDED), (PADDED, DIM)])
def test_parts_of_unequal_strides_are_merged_as_they_are(widths):
    outs, lses = parts(*widths)
    kwargs, right = named(outs, lses), torch.empty(TOKENS, HEADS, DIM)
    emulators.merge_attn_states(right, outs[0], lses[0], outs[1], lses[1])
    seen, state = {}, fresh()

    def merge(output, prefix_output, prefix_lse, suffix_output, suffix_lse):
        given = output, prefix_output, prefix_lse, suffix_output, suffix_lse
        seen.update(zip(kwargs, given))
        emulators.merge_attn_states(*given, one_stride=True)

    one_call.run(TARGET, merge, state, **kwargs)
    assert torch.equal(kwargs["output"], right) and (state.counters.corrections, state.counters.rows) == (1, TOKENS)
    same = [seen[name] is kwargs[name] for name in ("prefix_output", "suffix_output")]
    assert same == [width == DIM for width in widths], "what is packed is not copied"
    assert all(seen[name] is kwargs[name] for name in ("output", "prefix_lse", "suffix_lse"))


@pytest.mark.parametrize("width", [DIM, PADDED])
def test_parts_of_one_stride_are_left_alone(width):
    state = fresh()

    def merge(output, prefix_output, prefix_lse, suffix_output, suffix_lse):
        return "the engine's"

    assert one_call.run(TARGET, merge, state, **named(*parts(width, width))) == "the engine's"
    assert not state.counters.corrections


def test_an_error_of_the_engine_passes():
    state = fresh()

    def refuses(output, prefix_output, prefix_lse, suffix_output, suffix_lse):
        raise ValueError("the engine's")

    with pytest.raises(ValueError, match="the engine's"):
        one_call.run(TARGET, refuses, state, **named(*parts(DIM, PADDED)))
    assert state.armed and state.counters.corrections == 0
