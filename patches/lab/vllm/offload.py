"""A worker of vLLM that keeps KV on the CPU, its streams recorded: who waits for whom while blocks go there and come back.

    recorded(Offload).races           # OffloadingConnector, 0.11.0 and later
    recorded(SimpleOffload).races     # SimpleCPUOffloadConnector, 0.19.0 and later

Real: the workers with their streams, events, threads and tables of pointers. Stood in for: streams (`lab/order`), the copies of
the driver and of vLLM's own ops, and the forward pass, which reads and writes blocks on the current stream.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnfix.patches.lab.order import Order
from attnfix.patches.lab.order.streams import having
from attnfix.patches.lab.proof import replaced

_WORKERS = ("vllm.v1.kv_offload.cpu.gpu_worker", "vllm.v1.kv_offload.worker.cpu_gpu")
_SPECS = ("vllm.v1.kv_offload.mediums", "vllm.v1.kv_offload.base")
_SIMPLE = "vllm.v1.simple_kv_offload"
BLOCKS, BYTES = 8, 64
#: CU_MEMCPY_SRC_ACCESS_ORDER_ANY
_ANY = 3


def _first(*names: str) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not (error.name and f"{name}.".startswith(f"{error.name}.")):
                raise
    return None


def recorded(kind: type[Offload] | type[SimpleOffload]) -> Order:
    """What a worker did, and its races."""
    with Order("/vllm/v1/") as order, copies(order):
        kind(order).serve()
    return order


class Offload:
    """OffloadingConnector's worker."""

    def __init__(self, order: Order):
        import torch

        self.order, self.jobs = order, 0
        order.name(torch.cuda.current_stream(), "forward")
        self.home = _first(*_WORKERS)
        self.specs = next(one for name in _SPECS if (one := _first(name)) and hasattr(one, "GPULoadStoreSpec"))
        self.cpu_specs = self.specs
        if not hasattr(self.specs, "CPULoadStoreSpec"):
            self.cpu_specs = _first("vllm.v1.kv_offload.cpu.common", "vllm.v1.kv_offload.cpu.spec")
        single = getattr(self.home, "SingleDirectionOffloadingHandler", None)
        if single is not None and "gpu_tensors" in inspect.signature(single).parameters:
            self._of_pages(single)
        else:
            self._of_layers()
        order.name(self.gpu, "KV on the GPU")
        order.name(self.cpu, "KV on the CPU")
        torch.cuda.synchronize()

    def _of_layers(self) -> None:
        import torch

        self.gpu = torch.zeros(BLOCKS, 2, 16, 1, 2, dtype=torch.int8, device="cuda")
        backend = SimpleNamespace(get_kv_cache_shape=lambda num_blocks, block_size, num_kv_heads, head_size, **_: (
            num_blocks, 2, block_size, num_kv_heads, head_size))  # fmt: skip
        given = dict(
            gpu_block_size=16,
            cpu_block_size=16,
            num_cpu_blocks=BLOCKS,
            gpu_caches={"0": self.gpu},
            attn_backends={"0": backend},
        )
        with _pinned():
            if hasattr(self.home, "CpuGpuOffloadingHandlers"):
                both = self.home.CpuGpuOffloadingHandlers(**given)
                self.store, self.load = both.gpu_to_cpu_handler, both.cpu_to_gpu_handler
                self.cpu = self.store.dst_tensors[0]
            else:
                self.store = self.load = self.home.CpuGpuOffloadingHandler(**given)
                self.cpu = self.store.cpu_tensors[0]

    def _of_pages(self, single: Any) -> None:
        import torch

        self.gpu = torch.zeros(BLOCKS, BYTES, dtype=torch.int8, device="cuda")
        self.cpu = torch.zeros(BLOCKS, BYTES, dtype=torch.int8, pin_memory=True)
        refs = [[SimpleNamespace(tensor_idx=0, page_size_bytes=BYTES, mapping=None)]]
        names = inspect.signature(single).parameters
        given: dict[str, Any] = dict.fromkeys({"blocks_per_chunk", "block_size_factor"} & {*names}, 1)
        given |= dict.fromkeys({"layer_refs_per_group", "kv_cache_groups_data_refs"} & {*names}, refs)
        self.store, self.load = (
            single(gpu_tensors=[self.gpu], cpu_tensors=[self.cpu], gpu_to_cpu=to_cpu, **given) for to_cpu in (True, False)
        )

    def serve(self) -> None:
        """Blocks are computed and stored; freed and computed anew for another request, which is preempted; and loaded."""
        for _ in range(3):
            self.compute(0, 1)
            self.transfer(self.store, (0, 1), (0, 1))
            self.compute(2)
            self.transfer(self.store, (2,), (2,))
            self.finished(self.store)
            self.compute(0, 1)  # of another request: the former is done and kept
            if hasattr(self.store, "wait"):
                self.transfer(self.store, (0,), (3,))
                last = self.transfer(self.store, (1,), (4,))
                self.store.wait({last})  # they are preempted: transfers of a direction are done in their order
                self.compute(0, 1)
                self.finished(self.store)
            self.compute(4, 5)  # zeroed, or the last step of a request that has ended
            self.transfer(self.load, (0, 1), (4, 5))
            self.transfer(self.load, (2,), (6,))
            self.finished(self.load)
            self.compute(7, reads=(4, 5, 6))

    def compute(self, *writes: int, reads: tuple[int, ...] = ()) -> None:
        self.order.launch("forward pass", [(self.gpu, [*reads])] if reads else [], [(self.gpu, [*writes])])

    def transfer(self, handler: Any, source: tuple[int, ...], target: tuple[int, ...]) -> int:
        self.jobs += 1
        gpu, cpu = self.specs.GPULoadStoreSpec, self.cpu_specs.CPULoadStoreSpec
        more = {}
        if "group_sizes" in inspect.signature(gpu).parameters:
            more = {"group_sizes": [len(source)]}
            if "block_indices" in inspect.signature(gpu).parameters:
                more["block_indices"] = [0]
        storing = handler is self.store and not (handler is self.load and source[0] < 4 <= target[0])
        specs = (gpu([*source], **more), cpu([*target])) if storing else (cpu([*source]), gpu([*target], **more))
        apart = "src_spec" in inspect.signature(handler.transfer_async).parameters
        handler.transfer_async(self.jobs, *(specs if apart else (specs,)))
        return self.jobs

    def finished(self, handler: Any) -> None:
        """The scheduler hears which transfers are done."""
        handler.get_finished()


class SimpleOffload:
    """SimpleCPUOffloadConnector's worker."""

    def __init__(self, order: Order):
        import torch

        self.order = order
        self.home = importlib.import_module(f"{_SIMPLE}.worker")
        self.metadata = importlib.import_module(f"{_SIMPLE}.metadata").SimpleCPUOffloadMetadata
        order.name(torch.cuda.current_stream(), "forward")
        self.gpu = torch.zeros(BLOCKS, BYTES, dtype=torch.int8, device="cuda")
        kept = SimpleNamespace(
            num_blocks=BLOCKS, kv_cache_groups=[], kv_cache_tensors=[SimpleNamespace(
                layers=["0"], offset=0, block_stride=BYTES, layer_stride=BLOCKS * BYTES, size=BLOCKS * BYTES, shared_by=["0"],
            )],
        )  # fmt: skip
        self.worker = self.home.SimpleCPUOffloadWorker(SimpleNamespace(), kept, BLOCKS * BYTES)
        with _pinned():
            self.worker.register_kv_caches({"0": self.gpu})
        self.cpu = next(iter(self.worker.cpu_kv_caches.values()))
        order.name(self.gpu, "KV on the GPU")
        order.name(self.cpu, "KV on the CPU")
        torch.cuda.synchronize()
        order.name(self.worker.load_stream, "load")
        order.name(self.worker.store_stream, "store")

    def serve(self) -> None:
        """Blocks are computed and stored while they are computed; computed anew for another request; loaded; and a request is
        preempted while its blocks are stored."""
        self.step(0, computes=(0, 1), store=((0, 1), (0, 1)))
        self.step(1, computes=(2,), store=((2,), (2,)))
        self.step(2, computes=(0, 1))
        self.step(3, computes=(3,), load=((0, 2), (4, 5)))
        self.order.launch("forward pass", [(self.gpu, [4, 5])], [(self.gpu, [6])])
        self.step(4, computes=(7,), store=((7,), (3,)), wait=False)
        self.worker.handle_preemptions(self.metadata(need_flush=True))
        self.order.launch("forward pass", [], [(self.gpu, [7])])
        self.worker._backend.shutdown()

    def step(self, number: int, computes: tuple[int, ...], store: Any = None, load: Any = None, wait: bool = True) -> None:
        given: dict[str, Any] = {}
        if store:
            given |= dict(store_event=number, store_gpu_blocks=[*store[0]], store_cpu_blocks=[*store[1]])
        if load:
            given |= dict(load_event=number, load_cpu_blocks=[*load[0]], load_gpu_blocks=[*load[1]])
        self.order.launch("forward pass", [], [(self.gpu, [*computes])])
        worker = self.worker
        worker.bind_connector_metadata(self.metadata(**given))
        worker.start_load_kv()
        worker.wait_for_save()
        worker.get_finished(set())
        worker.clear_connector_metadata()
        deadline = time.monotonic() + 60
        while (store or load) and not (worker._store_events or worker._load_events) and time.monotonic() < deadline:
            time.sleep(0.001)  # the thread of copies; a list tells nothing of order
        if wait:
            worker.bind_connector_metadata(self.metadata())
            worker.get_finished(set())
            worker.clear_connector_metadata()


@contextmanager
def _pinned() -> Iterator[None]:
    """A platform that pins memory."""
    with ExitStack() as stack:
        for name in (*_WORKERS, f"{_SIMPLE}.worker"):
            home = _first(name)
            if home and hasattr(home, "is_pin_memory_available"):
                stack.enter_context(replaced(home, "is_pin_memory_available", lambda: True))
            if home and hasattr(home, "PIN_MEMORY"):
                stack.enter_context(replaced(home, "PIN_MEMORY", True))
        yield


@contextmanager
def copies(order: Order) -> Iterator[None]:
    """What copies blocks, told to `order`."""
    import torch

    ops = importlib.import_module("vllm._custom_ops")

    def swap_blocks(source: Any, target: Any, *rest: Any) -> None:
        mapping = rest[-1]
        with order.silent():
            rows = mapping.numpy()
        order.launch("swap_blocks", [(source, rows[:, 0])], [(target, rows[:, 1])])

    def swap_blocks_batch(sources: Any, targets: Any, sizes: Any, is_src_access_order_any: bool = False, **_: Any) -> None:
        with order.silent():
            reads, writes = (list(zip(one.tolist(), sizes.tolist())) for one in (sources, targets))
        order.host("the driver reads the table of copies", [sources, targets, sizes])
        order.copy("swap_blocks_batch", reads, writes, torch.cuda.current_stream(), is_src_access_order_any)

    def batch_memcpy(targets: int, sources: int, sizes: int, count: int, attributes: int, *rest: Any) -> int:
        words = ctypes.c_uint64 * count
        table = [np.ctypeslib.as_array(words.from_address(one)).tolist() for one in (sources, targets, sizes)]
        any_order = ctypes.c_uint.from_address(attributes).value == _ANY
        stream = order.stream_of(rest[-1])
        order.copy("cuMemcpyBatchAsync", list(zip(table[0], table[2])), list(zip(table[1], table[2])), stream, any_order)
        return 0

    with ExitStack() as stack:
        for name, value in (("swap_blocks", swap_blocks), ("swap_blocks_batch", swap_blocks_batch)):
            if hasattr(ops, name):
                stack.enter_context(replaced(ops, name, value))
        memory = _first(f"{_SIMPLE}.cuda_mem_ops")
        if memory:
            stack.enter_context(having(memory, "_batch_memcpy_fn", batch_memcpy))
            stack.enter_context(
                having(memory, "_batch_memcpy", (batch_memcpy, 1))
            )  # its later name, with the number of attributes
        for name in _WORKERS:
            home = _first(name)
            if home and hasattr(home, "swap_blocks_batch"):
                stack.enter_context(replaced(home, "swap_blocks_batch", swap_blocks_batch))
            if home and hasattr(home, "current_platform"):
                platform = type(home.current_platform)
                for function in ("current_stream", "stream", "Stream"):
                    stack.enter_context(having(platform, function, staticmethod(getattr(torch.cuda, function))))
        platforms = importlib.import_module("vllm.platforms")
        stack.enter_context(having(type(platforms.current_platform), "set_device", lambda *_: None))
        yield
