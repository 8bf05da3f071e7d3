"""Proof of vllm.dp-dummy-states: blocks that the dummy batch of an idle rank writes to, behind steps with requests.

Real: the config; Model Runner V1, its batch and its block tables, by their own constructors; the worker's dummy batch and the
runner's dummy run. Of Model Runner V2, its block tables and their Triton kernel, interpreted. Emulated: memory of a GPU, that
the tables are copied to; the slots that a step leaves there; the dispatcher's answer; and the layers with their metadata. A
layer of attention writes a key to the slot of each token, one with a state to the first block of each row.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import DENSE, Worker
from attnfix.patches.lab.vllm.model_runner_v1 import RUNNER, streams

from .wrap import forget, own_nothing

_WORKER, _TABLES = "vllm.v1.worker.gpu_worker", "vllm.v1.worker.gpu.block_table"
_V1_TABLES, _BUFFERS = "vllm.v1.worker.block_table", "vllm.v1.worker.gpu.buffer_utils"
_PAGE, _ROWS = 16, 8
_ATTENTION, _STATE = "model.layers.0.self_attn.attn", "model.layers.1"


class Idle(NamedTuple):
    """A dummy batch beside a rank that has so many requests. graph: that holds attention. v2: of Model Runner V2.

    early: a run before the first request, as for a capture.
    """

    others: int = 4
    graph: bool = True
    v2: bool = False
    where: str = ""
    early: bool = False


class Proof(Cases):
    modules = (_WORKER, RUNNER, _V1_TABLES, _TABLES, _BUFFERS)
    may_lack = (_TABLES, _BUFFERS)
    kernel = "interpreted"
    needs = f"{_V1_TABLES}:BlockTable._make_buffer"
    absent = "block tables of these releases are copied to the GPU in another way"
    measure = "blocks that a dummy batch wrote to"
    bug = (Idle(), Idle(1), Idle(graph=False), Idle(v2=True, where=f"{_BUFFERS}:get_accelerator_view_from_cpu_tensor"))
    spared = (Idle(early=True), Idle(early=True, graph=False))
    broken = {
        "nothing is changed": [(own_nothing, lambda real, rows, slots: None), (forget, lambda real, tables, first: None)],
        "the last row stays": [
            (own_nothing, lambda real, rows, slots: real([row[:-6] for row in rows], slots)),
            (forget, lambda real, tables, first: None),
        ],
        "the slots stay": (own_nothing, lambda real, rows, slots: real(rows, [])),
    }
    broken_where = {
        "the last row stays": f"{RUNNER}:GPUModelRunner._determine_batch_execution_and_padding",
        "the slots stay": f"no {RUNNER}:GPUModelRunner._dummy_run: fill_",
    }

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def prepare(self) -> None:
        super().prepare()
        if hasattr(self.engine.get(_BUFFERS), "get_accelerator_view_from_cpu_tensor"):
            self.engine[_BUFFERS].is_uva_available = lambda: True  # ordinary memory is seen by all of this machine
            self.engine[_BUFFERS].get_accelerator_view_from_cpu_tensor = lambda tensor: tensor

    def run(self, case: Idle, seed: int) -> Observation:
        import torch

        worker = Worker(DENSE, backend="flash_attn.FlashAttentionBackend", page_size=_PAGE, max_requests=_ROWS)
        with worker, streams(), torch.compiler.set_stance("force_eager"):
            rank = _V2(self.engine, case) if case.v2 else _V1(self.engine, case, worker)
            return rank.played()


class _Rank:
    """A rank whose dummy batches are watched."""

    def __init__(self, engine: dict[str, Any], case: Idle):
        self.case, self.engine, self.wrong = case, engine, 0
        self.seen: list[Any] = []

    def idle(self, runner: Any) -> None:
        worker = object.__new__(self.engine[_WORKER].Worker)
        worker.model_runner, worker.use_v2_model_runner = runner, self.case.v2
        worker.execute_dummy_batch()

    def keys(self, slots: Any) -> None:
        found = [slot for slot in slots.tolist() if slot >= 0]
        self.seen.append(found)
        self.wrong += len(found)

    def states(self, rows: Any) -> None:
        found = [block for block in rows[:, 0].tolist() if block > 0]
        self.seen.append(found)
        self.wrong += len(found)

    def observe(self) -> Observation:
        return Observation(float(self.wrong), hashlib.sha256(repr(self.seen).encode()).hexdigest())


class _V1(_Rank):
    def __init__(self, engine: dict[str, Any], case: Idle, worker: Worker):
        import torch

        super().__init__(engine, case)
        self.runner = runner = engine[RUNNER].GPUModelRunner(worker.config, torch.device("cpu"))
        interface: Any = import_module("vllm.v1.kv_cache_interface")
        state = _made(
            interface.MambaSpec, block_size=_PAGE * 64, shapes=((4, 4),), dtype=torch.float32, dtypes=(torch.float32,),
            mamba_type=self._kind(), page_size_padded=None, num_speculative_blocks=0,
        )  # fmt: skip
        specs = {_ATTENTION: worker.spec(worker.layer(0)), _STATE: state}
        groups = [interface.KVCacheGroupSpec([name], spec) for name, spec in specs.items()]
        runner.kv_cache_config = interface.KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=groups)
        sizes = [group.kv_cache_spec.block_size for group in groups]
        more = "kernel_block_sizes" in signature(runner.may_reinitialize_input_batch).parameters
        runner.may_reinitialize_input_batch(runner.kv_cache_config, *[sizes] * more)
        builder = SimpleNamespace(
            build=lambda common_prefix_len, common_attn_metadata, **more: common_attn_metadata,
            build_for_cudagraph_capture=lambda common: common, supports_update_block_table=False,
        )  # fmt: skip
        made = lambda common, *args, **kwargs: common  # noqa: E731
        shared = dict(
            backend=None, get_metadata_builder=lambda *args, **kwargs: builder, build_metadata=made,
            build_metadata_for_cudagraph_capture=made,
        )  # fmt: skip
        runner.attn_groups = [
            [SimpleNamespace(layer_names=[name], kv_cache_spec=specs[name], kv_cache_group_id=at, **shared)]
            for at, name in enumerate(specs)
        ]
        runner.model = self._model
        self.batch = runner.input_batch
        for table in self.batch.block_table.block_tables:
            for buffer in (table.block_table, table.slot_mapping):
                buffer.gpu = buffer.gpu.clone()
        runner.cudagraph_dispatcher.dispatch = self._dispatched

    def _kind(self) -> Any:
        registry = kernels.found("vllm.v1.attention.backends.registry")
        kinds = getattr(registry, "MambaAttentionBackendEnum", None)
        return "mamba2" if kinds is None else kinds.MAMBA2

    def _dispatched(self, *args: Any, **options: Any) -> Any:
        modes: Any = import_module("vllm.config.compilation" if kernels.found("vllm.config.compilation") else "vllm.config")
        cls = import_module("vllm.forward_context").BatchDescriptor
        mode = modes.CUDAGraphMode.FULL if self.case.graph else modes.CUDAGraphMode.NONE
        return mode, _made(cls, num_tokens=self.case.others, num_reqs=self.case.others, uniform_decode=True, uniform=True)

    def _model(self, input_ids: Any, **more: Any) -> Any:
        import torch

        context = import_module("vllm.forward_context").get_forward_context()
        if context.attn_metadata is not None:
            self.states(context.attn_metadata[_STATE].block_table_tensor)
        if self.case.graph:  # it reads the memory that it was captured on
            self.keys(self.batch.block_table[0].slot_mapping.gpu[: self.case.others])
        elif isinstance(getattr(context, "slot_mapping", None), dict):
            self.keys(context.slot_mapping[_ATTENTION])
        return torch.zeros(len(input_ids), self.runner.model_config.get_hidden_size())

    def played(self) -> Observation:
        if self.case.early:  # as a capture runs, when nothing is owned
            self.runner._dummy_run(self.case.others, uniform_decode=True)
            self.wrong = 0
            return self.observe()
        for name in range(3):
            self._add(name)
        self._step()
        self._finish(0)
        self._step()
        self._finish(1, 2)
        self.idle(self.runner)
        self._add(3)
        self._step()
        self.seen.append([table.block_table.gpu[0].tolist() for table in self.batch.block_table.block_tables])
        self.wrong += self.seen[-1][1][0] != 13
        return self.observe()

    def _add(self, name: int) -> None:
        sampling: Any = import_module("vllm.sampling_params").SamplingParams(max_tokens=4)
        cls = import_module("vllm.v1.worker.gpu_input_batch").CachedRequestState
        self.batch.add_request(
            _made(
                cls, req_id=str(name), prompt_token_ids=[1] * 20, mm_kwargs=[], mm_positions=[], mm_hashes=[], mm_features=[],
                mm_inputs=[], sampling_params=sampling, pooling_params=None, generator=None, num_computed_tokens=0,
                block_ids=([2 * name + 1, 2 * name + 2], [10 + name]), output_token_ids=[],
            )
        )  # fmt: skip
        self.batch.refresh_metadata()

    def _step(self) -> None:
        """What a step with the requests leaves on the GPU."""
        requests = self.batch.num_reqs
        self.batch.block_table.commit_block_table(requests)
        for table in self.batch.block_table.block_tables:
            table.slot_mapping.gpu[:requests] = table.block_table.gpu[:requests, 0].long() * table.block_size + 3
            table.slot_mapping.gpu[requests:] = -1

    def _finish(self, *names: int) -> None:
        for name in names:
            self.batch.remove_request(str(name))
        self.batch.condense()
        self.batch.refresh_metadata()


class _V2(_Rank):
    def played(self) -> Observation:
        import torch

        tables = _made(
            self.engine[_TABLES].BlockTables, block_sizes=[_PAGE, _PAGE], kernel_block_sizes=[_PAGE, _PAGE], max_num_reqs=_ROWS,
            max_num_batched_tokens=64, max_model_len=64, max_num_blocks_per_group=[4, 4], device=torch.device("cpu"),
        )  # fmt: skip
        for row in range(3):
            tables.append_block_ids(row, ([2 * row + 1, 2 * row + 2], [10 + row]), True)
        tables.apply_staged_writes()
        gather = tables.gather_block_tables
        rows = torch.arange(3, dtype=torch.int32)
        gather(rows, *(3,) * ("num_reqs_padded" in signature(gather).parameters))

        def _dummy_run(*args: Any, **options: Any) -> None:
            self.states(tables.get_dummy_block_tables(self.case.others)[1])
            self.keys(tables.get_dummy_slot_mappings(self.case.others)[0])

        self.idle(SimpleNamespace(block_tables=tables, _dummy_run=_dummy_run, uniform_decode_query_len=1))
        self.seen.append([row.tolist() for row in gather(rows, *(3,) * ("num_reqs_padded" in signature(gather).parameters))])
        self.wrong += self.seen[-1][1][0][0] != 10
        return self.observe()


def _made(cls: Any, **given: Any) -> Any:
    return cls(**{name: given[name] for name in signature(cls).parameters if name in given})
