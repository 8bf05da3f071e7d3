"""vllm.dp-dummy-states without an engine: the tables that a dummy batch sees, and those that it leaves."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dp_dummy_states.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "execute_dummy_batch")


class Worker(SimpleNamespace):
    """The engine's: says what memory its runner sees."""

    def execute_dummy_batch(self):
        self.saw = memory(self.model_runner)
        if self.fails:
            raise ValueError("the engine's own")


def memory(runner):
    if hasattr(runner, "block_tables"):
        return [table.tolist() for table in runner.block_tables.input_block_tables]
    tables = runner.input_batch.block_table.block_tables
    return [(one.block_table.gpu.tolist(), one.block_table.np.tolist(), one.slot_mapping.gpu.tolist()) for one in tables]


def v1(requests, counts=(2, 1, 0), shared=False):
    """Three rows, of which the batch has so many. shared: one memory for host and device, as without a GPU."""
    rows = np.array([[5, 6], [7, 0], [9, 9]], dtype=np.int32)
    device = torch.from_numpy(rows) if shared else torch.from_numpy(rows.copy())
    table = SimpleNamespace(
        block_table=SimpleNamespace(np=rows, gpu=device), num_blocks_per_row=np.array(counts, dtype=np.int32),
        slot_mapping=SimpleNamespace(gpu=torch.tensor([80, 81, 0, 0])),
    )  # fmt: skip
    waited = []

    @contextmanager
    def synchronize_input_prep():
        waited.append(rows.tolist())  # before anything is changed
        yield

    batch = SimpleNamespace(num_reqs=requests, block_table=SimpleNamespace(block_tables=[table]))
    return SimpleNamespace(input_batch=batch, synchronize_input_prep=synchronize_input_prep, waited=waited, table=table)


def run(runner, fails=False):
    """(worker, corrections)"""
    worker, state = Worker(model_runner=runner, fails=fails), FixState(FIX)
    state.fired = True
    one_call.run(TARGET, Worker.execute_dummy_batch, state, worker)
    return worker, state.counters.corrections


@pytest.mark.parametrize("shared", [True, False])
def test_rows_of_former_requests_and_all_slots_are_given_up(shared):
    runner = v1(requests=0, shared=shared)
    worker, corrections = run(runner)
    rows = [[0, 0], [0, 0], [0, 0]] if shared else [[0, 0], [0, 0], [9, 9]]  # the engine copies no row without blocks
    assert worker.saw == [([[0, 0]] * 3, rows, [-1] * 4)] and corrections == 1
    assert runner.table.num_blocks_per_row.tolist() == [0, 0, 0] and runner.waited == [[[5, 6], [7, 0], [9, 9]]]


def test_memory_that_was_made_in_inference_mode_is_given_up():
    with torch.inference_mode():
        runner = v1(requests=0)
        runner.table.block_table.gpu = runner.table.block_table.gpu.clone()
    worker, corrections = run(runner)
    assert corrections == 1 and worker.saw[0][0] == [[0, 0]] * 3 and worker.saw[0][2] == [-1] * 4


def test_rows_of_the_batchs_requests_stay():
    worker, _ = run(v1(requests=1))
    assert worker.saw == [([[5, 6], [0, 0], [0, 0]], [[5, 6], [0, 0], [9, 9]], [-1] * 4)]


@pytest.mark.parametrize("requests, counts", [(0, (0, 0, 0)), (2, (2, 1, 0))])
def test_without_rows_of_former_requests_nobody_waits(requests, counts):
    runner = v1(requests, counts)
    worker, _ = run(runner)
    assert worker.saw == [([[5, 6], [7, 0], [9, 9]], [[5, 6], [7, 0], [9, 9]], [-1] * 4)] and not runner.waited


def test_rows_of_model_runner_v2_are_given_up():
    tables = SimpleNamespace(input_block_tables=[torch.tensor([[5, 6], [7, 0]]), torch.tensor([[3], [4]])])
    worker, corrections = run(SimpleNamespace(block_tables=tables))
    assert worker.saw == [[[0, 0], [0, 0]], [[0], [0]]] and corrections == 1


@pytest.mark.parametrize("runner", [SimpleNamespace(), SimpleNamespace(input_batch=SimpleNamespace(), block_tables=None)])
def test_before_the_cache_is_there_nothing_is_done(runner):
    state = FixState(FIX)
    one_call.run(TARGET, lambda self: None, state, SimpleNamespace(model_runner=runner))
    assert state.counters.corrections == 0


def test_an_error_of_the_engine_passes():
    with pytest.raises(ValueError, match="the engine's own"):
        run(v1(requests=0), fails=True)
