"""vllm.dp-draft-hang without an engine: how often the drafter of an idle rank passes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dp_draft_hang.fix import FIX
from tests.support import one_call


class Drafter:
    """levels: of the tree of drafts; None as in 0.10.0, which has no trees."""

    def __init__(self, levels, fails=False):
        self.passes, self.fails = [], fails
        if levels:
            self.cu_drafts_per_level = [1] * levels

    def dummy_run(self, num_tokens, use_cudagraphs=True):
        self.passes.append((num_tokens, use_cudagraphs))
        if self.fails:
            raise ValueError("the engine's own")


def execute_dummy_batch(self):
    if drafter := getattr(self.model_runner, "drafter", None):
        drafter.dummy_run(1, use_cudagraphs=False)
        self.model_runner.balanced = len(drafter.passes)


def run(drafts=3, levels=None, ranks=2, eagle=True, drafter=True, fails=False):
    """(passes, corrections)"""
    runner = SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=drafts, use_eagle=lambda: eagle),
        vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_size=ranks)),
    )
    if drafter:
        runner.drafter = Drafter(levels, fails)
    state = FixState(FIX)
    one_call.run(
        one_call.target_of(FIX, "execute_dummy_batch"), execute_dummy_batch, state, SimpleNamespace(model_runner=runner)
    )
    if not drafter:
        return [], state.counters.corrections
    assert "dummy_run" not in vars(runner.drafter), "captures and profiles make one pass"
    assert runner.balanced == len(runner.drafter.passes), "experts are balanced behind all passes"
    return runner.drafter.passes, state.counters.corrections


@pytest.mark.parametrize("levels", [None, 3])
def test_an_idle_rank_drafts_as_often_as_the_others(levels):
    assert run(levels=levels) == ([(1, False)] * 3, 1)


@pytest.mark.parametrize("how", [{"drafts": 1, "levels": 1}, {"ranks": 1}, {"eagle": False}, {"levels": 2}])
def test_who_passes_once_passes_once(how):
    assert run(**how) == ([(1, False)], 0)


def test_a_rank_without_a_drafter_is_left_alone():
    assert run(drafter=False) == ([], 0)


def test_an_error_of_the_engine_passes():
    with pytest.raises(ValueError, match="the engine's own"):
        run(fails=True)
