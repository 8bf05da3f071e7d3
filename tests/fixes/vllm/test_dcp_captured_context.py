"""vllm.dcp-captured-context without an engine: captures and steps without a context, and those that are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dcp_captured_context.fix import FIX
from tests.support import one_call


class Builder:
    """The engine's, as far as it leaves attention to a context out, and its schedule as it was."""

    dcp_world_size, cp_kv_cache_interleave_size = 2, 4
    use_full_cuda_graph = aot_schedule = True
    max_cudagraph_size, schedule = 8, "an earlier step's"

    def __init__(self, **changes):
        vars(self).update(changes)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        lens, starts = common_attn_metadata.seq_lens_cpu_upper_bound, common_attn_metadata.query_start_loc_cpu
        attends = lens is None or bool((lens > starts.diff()).any())
        if attends:
            self.schedule = common_attn_metadata.seq_lens.tolist()
        return attends

    def build_for_cudagraph_capture(self, common_attn_metadata):
        return self.build(0, common_attn_metadata)


def batch(context, new, known=True):
    starts = torch.tensor([0, *new], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    lens = torch.tensor(context, dtype=torch.int32) + torch.tensor(new, dtype=torch.int32)
    return SimpleNamespace(
        num_reqs=len(new), num_actual_tokens=sum(new), query_start_loc_cpu=starts, seq_lens=lens,
        seq_lens_cpu_upper_bound=lens.clone() if known else None,
    )  # fmt: skip


def captured(common, **builder):
    """Whether the graph attends to a context; corrections."""
    state, target = FixState(FIX), one_call.target_of(FIX, "build_for_cudagraph_capture")
    attends = one_call.run(target, Builder.build_for_cudagraph_capture, state, Builder(**builder), common)
    return attends, state.counters.corrections


def stepped(common, fast=False, **changes):
    """Whether the step attends to a context; whose schedule lies where graphs read it; corrections."""
    state, builder, target = FixState(FIX), Builder(**changes), one_call.target_of(FIX, "build")
    attends = one_call.run(target, Builder.build, state, builder, 0, common_attn_metadata=common, fast_build=fast)
    return attends, builder.schedule, state.counters.corrections


@pytest.mark.parametrize("new", [(1,), (1, 1, 1, 1), (3, 3), (2, 1)])
def test_a_capture_without_a_context_is_told_of_one_on_the_host(new):
    common = batch((0,) * len(new), new)
    before = common.seq_lens_cpu_upper_bound.clone()
    assert captured(common) == (True, 1)
    assert common.seq_lens_cpu_upper_bound.equal(before) and common.seq_lens.tolist() == list(new)  # other builders read them


@pytest.mark.parametrize(
    ("common", "builder", "attends"),
    [
        (batch((8, 8), (1, 1)), {}, True),  # as the former runner captures
        (batch((0, 8), (1, 1)), {}, True),
        (batch((0,), (1,), known=False), {}, True),
        (batch((0, 0), (1, 1)), {"dcp_world_size": 1}, False),
    ],
)
def test_other_captures_are_left_alone(common, builder, attends):
    assert captured(common, **builder) == (attends, 0)


def test_a_step_without_a_context_is_the_engines_own_and_has_its_schedule():
    assert stepped(batch((0, 0), (1, 3))) == (False, [1, 3], 1)


@pytest.mark.parametrize(
    ("common", "builder"),
    [
        (batch((0, 0), (1, 8)), {}),  # longer than any graph
        (batch((0,), (1,)), {"max_cudagraph_size": None}),
        (batch((0,), (1,)), {"use_full_cuda_graph": False}),
        (batch((0,), (1,)), {"aot_schedule": False}),
        (batch((0,), (1,)), {"dcp_world_size": 1}),
        (batch((0,), (1,)), {"fast": True}),  # a drafter's, for which the engine makes no schedule
    ],
)
def test_steps_for_which_no_graph_reads_a_schedule_are_left_alone(common, builder):
    assert stepped(common, **builder) == (False, "an earlier step's", 0)


def test_a_step_with_a_context_is_left_alone():
    assert stepped(batch((0, 5), (1, 1))) == (True, [1, 6], 0)
