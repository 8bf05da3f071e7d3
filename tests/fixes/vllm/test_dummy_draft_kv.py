"""vllm.dummy-draft-kv without an engine: what is changed while a dummy batch drafts, and that it is put back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dummy_draft_kv.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "execute_dummy_batch")
STEPS = 3


def tables(groups=True, blocks=5):
    numbers = torch.zeros(2, 4, dtype=torch.int32)
    numbers[0, 1] = blocks
    rows = [SimpleNamespace(gpu=torch.arange(1, 41, dtype=torch.int32).view(4, 10).clone()) for _ in range(2)]
    made = SimpleNamespace(num_blocks=SimpleNamespace(np=numbers.numpy()), block_tables=rows, cp_size=1)
    made.block_sizes_tensor = torch.tensor([16, 32], dtype=torch.int32)
    if groups:
        made.slot_mapping_enabled = torch.tensor([True, False])
    return made


class Worker(SimpleNamespace):
    """The engine's: says what memory its runner sees."""

    def execute_dummy_batch(self):
        if self.fails:
            raise ValueError("the engine's own")
        held = self.model_runner.block_tables
        self.saw = (
            [table.gpu.clone() for table in held.block_tables],
            getattr(held, "slot_mapping_enabled", torch.ones(1)).clone(),
            held.block_sizes_tensor.tolist(),
        )


def run(held, steps=STEPS, fails=False, **runner):
    """(worker, corrections)"""
    speculator = SimpleNamespace(num_speculative_steps=steps)
    worker = Worker(model_runner=SimpleNamespace(**{"block_tables": held, "speculator": speculator, **runner}), fails=fails)
    state = FixState(FIX)
    state.fired = True
    before = memory(held)
    try:
        one_call.run(TARGET, Worker.execute_dummy_batch, state, worker)
    finally:
        assert memory(held) == before, "what was changed is as it was"
    return worker, state.counters.corrections


def memory(held):
    enabled = getattr(held, "slot_mapping_enabled", None)
    tables = [table.gpu.tolist() for table in held.block_tables]
    return tables, held.block_sizes_tensor.tolist(), enabled is not None and enabled.tolist()


def test_a_dummy_batch_has_no_slots():
    worker, corrections = run(tables())
    rows, enabled, sizes = worker.saw
    assert (enabled.tolist(), sizes, corrections) == ([False, False], [16, 32], 1)
    assert all(bool((table > 0).all()) for table in rows)


@pytest.mark.parametrize("groups", [True, False])
def test_where_the_kernel_cannot_be_told_nothing_is_changed(groups):
    worker, corrections = run(tables(groups))
    rows, _, sizes = worker.saw
    assert corrections == groups and sizes == [16, 32] and all(bool((table > 0).all()) for table in rows)


@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("how", [dict(steps=1), dict(speculator=None)], ids=["one draft", "no drafts, or another rank drafts"])
def test_other_runners_are_left_alone(groups, how):
    worker, corrections = run(tables(groups), **how)
    assert corrections == 0
    assert worker.saw[0][0].all() and worker.saw[1].any()


def test_model_runner_v1_is_left_alone():
    state = FixState(FIX)
    worker = SimpleNamespace(model_runner=SimpleNamespace(drafter=None))
    one_call.run(TARGET, lambda self: None, state, worker)
    assert state.counters.corrections == 0


@pytest.mark.parametrize("groups", [True, False])
def test_before_the_first_request_nothing_is_changed(groups):
    assert run(tables(groups, blocks=0))[1] == 0


@pytest.mark.parametrize("groups", [True, False])
def test_all_is_put_back_where_the_engine_fails(groups):
    with pytest.raises(ValueError, match="the engine's own"):
        run(tables(groups), fails=True)
