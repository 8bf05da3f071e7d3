"""Attempt at vllm.dummy-mamba-state (upstream pull 49757): which blocks do the rows of a dummy batch name?

    PYTHONPATH=<folder of a release> ATTNFIX=0 TRITON_INTERPRET=1 python -m scripts.attempts.vllm_dummy_mamba_state

A rank that has nothing to run takes part with a dummy batch. A layer with a recurrent state writes that batch's states to the
blocks that its rows of the block table name. This plays two requests by the engine's own input batch (V1 runner) and block
tables (Model Runner V2), and prints what the rows hold that a dummy batch of as many requests then takes.

V1: two requests finish in two steps, so that the second one moves to the row of the first in between. Seen in 0.26.0: the row
that it left keeps the numbers of its blocks until a request gets that row, also when it is finished and another request has
the blocks; in 0.27.0 that row is zero, the null block. V2: a batch of two requests has run. Seen in 0.26.0: the dummy batch
gets its rows as they are; in 0.27.0 zeros.

That a live request's block is named is so by this. Whether its state is overwritten when it matters was not played: a request
that runs on this rank is no dummy batch, so only a state that waits is exposed, as one that a connector is loading. There is
no kernel and no connector here, and no fix is made of it.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from inspect import signature
from typing import Any

from attnfix.patches.lab.proof import replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.prove import stubs

_ROWS, _LENGTH, _BUFFERS = 4, 64, "vllm.v1.worker.gpu.buffer_utils"
_FIRST, _SECOND = [3], [5]  # blocks of states


def made(cls: Any, **given: Any) -> Any:
    return cls(**{name: given[name] for name in signature(cls).parameters if name in given})


def v1() -> list[list[int]]:
    """The rows that a dummy batch of two takes, when both requests are finished."""
    import torch

    module: Any = import_module("vllm.v1.worker.gpu_input_batch")
    batch = made(
        module.InputBatch, max_num_reqs=_ROWS, max_model_len=_LENGTH, max_num_batched_tokens=_LENGTH, vocab_size=100,
        device=torch.device("cpu"), block_sizes=[_LENGTH], kernel_block_sizes=[_LENGTH], max_num_blocks_per_req=[2],
    )  # fmt: skip
    sampling: Any = import_module("vllm.sampling_params").SamplingParams(temperature=0.0)
    for name, blocks in (("first", _FIRST), ("second", _SECOND)):
        request = made(
            module.CachedRequestState, req_id=name, prompt_token_ids=[1, 2, 3], mm_features=[], sampling_params=sampling,
            generator=None, block_ids=(blocks,), num_computed_tokens=3, output_token_ids=[],
        )  # fmt: skip
        batch.add_request(request)
    batch.refresh_metadata()
    for name in ("first", "second"):  # each in a step of its own
        batch.remove_request(name)
        batch.condense()
        batch.refresh_metadata()
    batch.block_table.commit_block_table(2)
    rows: list[list[int]] = batch.block_table[0].get_device_tensor(2).tolist()
    return rows


def v2() -> list[list[int]]:
    """The rows that a dummy batch of two takes behind a batch of two requests."""
    import torch

    buffers: Any = import_module(_BUFFERS)
    views = [name for name in vars(buffers) if name.startswith("get_") and name.endswith("view_from_cpu_tensor")]
    with ExitStack() as stack:
        stack.enter_context(replaced(buffers, "is_uva_available", lambda: True))
        for name in views:  # ordinary memory is seen by all of this machine
            stack.enter_context(replaced(buffers, name, lambda tensor: tensor))
        tables = made(
            import_module("vllm.v1.worker.gpu.block_table").BlockTables, block_sizes=[_LENGTH], kernel_block_sizes=[_LENGTH],
            max_num_reqs=_ROWS, max_num_batched_tokens=_LENGTH, max_model_len=_LENGTH, max_num_blocks_per_group=[2],
            device=torch.device("cpu"),
        )  # fmt: skip
        for row, blocks in enumerate((_FIRST, _SECOND)):
            tables.append_block_ids(row, (blocks,), overwrite=True)
        tables.apply_staged_writes()
        tables.gather_block_tables(torch.tensor([0, 1], dtype=torch.int32), 2)
        return [row[:2] for row in tables.get_dummy_block_tables(2)[0].tolist()]


def main() -> None:
    stubs.install("vllm")
    kernels.stand_in()
    version = import_module("importlib.metadata").version("vllm")
    for runner, played in (("V1 runner", v1), ("Model Runner V2", v2)):
        with kernels.on_cpu():
            rows = played()
        named = sorted({block for row in rows for block in row} - {0})
        print(f"{version}, {runner}: rows {rows}, " + (f"blocks {named} of requests" if named else "the null block alone"))


if __name__ == "__main__":
    main()
