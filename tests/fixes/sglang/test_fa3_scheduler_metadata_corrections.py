"""sglang.fa3-scheduler-metadata without an engine: which deployments make no schedule ahead, and the model of its fault."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fa3_scheduler_metadata import proof
from attnfix.patches.sglang.fa3_scheduler_metadata.fix import FIX
from tests.support import one_call

INIT = one_call.target_of(FIX, "__init__")


class Backend:
    def __init__(self, model_runner, skip_prefill=False):
        self._get_scheduler_metadata, self.use_mla = model_runner.schedule, model_runner.use_mla
        if model_runner.spared is not None:  # from 0.5.12 on
            self._disable_scheduler_metadata_precompute = model_runner.spared


def made(schedule="the kernel's", use_mla=False, spared=None, **flags):
    runner = SimpleNamespace(schedule=schedule, use_mla=use_mla, spared=spared, server_args=SimpleNamespace(**flags))
    backend, state = object.__new__(Backend), FixState(FIX)
    one_call.run(INIT, Backend.__init__, state, backend, runner, False)
    return backend._get_scheduler_metadata, state.counters.corrections


@pytest.mark.parametrize("flag", ["enable_dp_attention", "enable_prefill_cp", "enable_prefill_context_parallel"])
def test_where_a_rank_has_more_heads_no_schedule_is_made_ahead(flag):
    assert made(**{flag: True}) == (None, 1)


@pytest.mark.parametrize("flags", [{}, {"enable_dp_attention": False, "enable_prefill_cp": False}])
def test_tensor_parallelism_alone_keeps_it(flags):
    assert made(**flags) == ("the kernel's", 0)


def test_a_backend_without_one_is_no_correction():
    assert made(schedule=None, enable_dp_attention=True) == (None, 0)


@pytest.mark.parametrize("spares", [{"use_mla": True}, {"spared": True}])
def test_a_backend_that_makes_none_keeps_what_it_has(spares):
    assert made(**spares, attn_cp_size=2) == ("the kernel's", 0)
    assert made(**dict.fromkeys(spares, False), attn_cp_size=2) == (None, 1)


def test_an_error_of_the_engine_passes():
    with pytest.raises(AttributeError, match="schedule"):
        one_call.run(INIT, Backend.__init__, FixState(FIX), object.__new__(Backend), object())


@pytest.mark.parametrize("kv_heads, tokens, parts", [(1, 4096, 28), (8, 4096, 14), (8, 512, 1), (128, 4096, 1)])
def test_fewer_heads_are_split_into_more_parts(kv_heads, tokens, parts):
    """`num_splits_heuristic` by hand: the least number of parts that keeps 132 SMs within 85 % of the busiest."""
    assert proof.parts(kv_heads, tokens) == parts
