"""A server of sglang with HiCache, its streams recorded: who waits for whom while prefixes go to the host and come back.

    order = recorded(indexed=False)
    order.races

Real: the KV pool and its accessors, the host pool, the allocator, `HiCacheController` with its streams, events and copies, and
the scheduler's statements that give it streams to wait for. Stood in for: streams (`lab/order`), the kernels that copy KV
between host and GPU, and the loop of the scheduler, which overlaps: a batch is launched before the result of the last one is
processed.

Tried: 0.5.2-0.5.23; with index keys up to 0.5.19.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np

from attnfix.patches.lab.order import Order
from attnfix.patches.lab.order.streams import having
from attnfix.patches.lab.proof import NoSuchPath, replaced

from .engine import accepted, module

LAYERS = 2
_KERNELS = re.compile(r"\b(?:jit_)?transfer_(?:kv|hicache)_\w+")
_ACCESSORS = "get_key_buffer", "get_value_buffer"
_INDEX_ACCESSORS = (
    "get_index_k_continuous", "get_index_k_scale_continuous", "get_index_k_scale_buffer", "get_index_k_with_scale_buffer",
)  # fmt: skip
_HOSTS = ("mem_cache.memory_pool_host", "mem_cache.pool_host.mha", "mem_cache.pool_host.mla", "mem_cache.pool_host.dsa")


def recorded(indexed: bool = False, io: str = "kernel", unfenced: str = "") -> Order:
    """What a server did, and its races: the arguments are those of `HiCache`."""
    for name in ("layers.quantization", "managers.cache_controller", *_HOSTS):
        module(name)
    with Order("/sglang/srt/") as order, copy_kernels(order):
        HiCache(order, indexed, io, unfenced=unfenced).serve()
    return order


def recorded_threads(drafting: bool) -> Order:
    """What a server did whose threads copy (up to 0.5.1.post3), and its races."""
    for name in ("layers.quantization", "managers.cache_controller", "managers.scheduler", *_HOSTS):
        module(name)
    with Order("/sglang/srt/") as order, copy_kernels(order):
        HiCache(order).serve_by_threads(drafting)
    return order


class HiCache:
    """Pools and controller of one rank. indexed: of a model with sparse MLA, with index keys. io: `--hicache-io-backend`.
    unfenced: a fence that the scheduler leaves out, such as "load_fence_stream"."""

    def __init__(self, order: Order, indexed: bool = False, io: str = "kernel", pages: int = 8, unfenced: str = ""):
        import torch

        self.order, self.indexed = order, indexed
        self._joins: list[Any] = []
        self.load_event = threading.Event()
        self.controllers = module("managers.cache_controller")
        self.page = 64 if indexed else 1
        tokens = pages * self.page
        self.forward_stream = order.stream("forward")
        order.name(torch.cuda.current_stream(), "schedule")
        with host_memory():
            self.pool = _pool(indexed, tokens, self.page)
            self.allocator = _allocator(self.pool, tokens, self.page, indexed)
            self.controller: Any = _with_indexer(self, io) if indexed else None
            if self.controller is None:
                host = _host_pool(self.pool, indexed, self.page)
                made = self.controllers.HiCacheController
                self.controller = made(**accepted(made, dict(
                    token_to_kv_pool_allocator=self.allocator, mem_pool_host=host, page_size=self.page, tp_group=None,
                    load_cache_event=self.load_event, io_backend=io, write_policy="write_through",
                )))  # fmt: skip
        engine = getattr(self.controller, "l2_transfer_engine", None)
        order.name(engine.host_to_device_stream if engine else self.controller.load_stream, "load")
        order.name(engine.device_to_host_stream if engine else self.controller.write_stream, "write")
        for layer in range(LAYERS):
            for name, buffer in self._buffers(layer):
                order.name(buffer, f"{name} of layer {layer}")
        fence(self.controller, self.forward_stream, unfenced)
        torch.cuda.synchronize()

    def serve(self) -> None:
        """A prompt is computed and kept on the host; its pages are freed. Another one ends while its next step is in flight,
        and its pages are those that the first prompt's prefix comes back to, for a third request. Then the host needs the
        pages of that prefix for another."""
        import torch

        controller, host = self.controller, self.controller.mem_pool_host
        first, other = self.allocate(3 * self.page), self.allocate(2 * self.page)
        self.forward(first, -1)
        self.forward(other, -1).synchronize()
        kept = controller.write(first.clone(), **self.more)  # as of a node that is split: its indices are gone
        self.acknowledge()
        self.allocator.free(first)
        second = self.allocate(self.allocator.available_size())
        self.forward(second, -1).synchronize()
        late = self.forward(second[: self.page], -1, reads=second)  # one more token of a request that has ended
        self.allocator.free(second)
        back = torch.cat([controller.load(part, **self.more) for part in (kept[: self.page], kept[self.page :])])
        self.order.handed_over(*self._all_of(back))
        consumer = controller.start_loading()
        new = self.allocate(self.page)
        late.synchronize()
        last = self.forward(new, consumer, reads=back)
        self.acknowledge()
        host.alloc(host.available_size())
        controller.evict_host(kept)
        controller.write(other, **self.more)
        last.synchronize()
        self.acknowledge()
        self.allocator.free(other)
        self.forward(self.allocate(self.allocator.available_size()), -1).synchronize()

    def serve_by_threads(self, drafting: bool) -> None:
        """Up to 0.5.1.post3 threads copy, and `Scheduler.run_batch` says for which copy a batch waits: a prefix comes back."""
        controller = self.controller
        first = self.allocate(3 * self.page)
        self.forward(first, None).synchronize()
        kept = controller.write(first, node_id=1)
        controller.ack_write_queue.get(timeout=60)
        self.allocator.free(first)
        back = controller.load(kept, node_id=1)
        self.order.handed_over(*self._all_of(back))
        consumer = controller.layer_done_counter.next_producer()
        self.load_event.set()  # both as in `HiRadixCache.ready_to_load_host_cache`
        new = self.allocate(self.page)
        while controller.layer_done_counter.producer_index != consumer:
            time.sleep(0.01)  # the scheduler prepares the batch; the thread begins
        time.sleep(0.1)
        self._run_batch(consumer, drafting, lambda: self.forward(new, None, reads=back))
        controller.ack_load_queue.get(timeout=60)
        controller.stop_event.set()

    def _run_batch(self, consumer: int, drafting: bool, forward: Callable[[], Any]) -> None:
        asked = SimpleNamespace(hicache_consumer_index=consumer, bid=0)
        batch = SimpleNamespace(
            get_model_worker_batch=lambda: asked, batch_size=lambda: 1, return_logprob=False, reqs=[], **vars(asked)
        )
        worker = SimpleNamespace(
            set_hicache_consumer=self.controller.layer_done_counter.set_consumer,
            forward_batch_generation=lambda batch: (forward(), None, False),
        )
        scheduler = SimpleNamespace(
            forward_ct=0, _profile_batch_predicate=lambda batch: None, forward_sleep_time=None, is_generation=True,
            tp_worker=worker, spec_algorithm=SimpleNamespace(is_none=lambda: not drafting, is_eagle=lambda: drafting),
            pp_group=SimpleNamespace(is_last_rank=True), spec_num_total_accepted_tokens=0, spec_num_total_forward_ct=0,
            num_generated_tokens=0, draft_worker=SimpleNamespace(
                forward_batch_speculative_generation=lambda batch: (forward(), None, 0, 0, False)),
        )  # fmt: skip
        module("managers.scheduler").Scheduler.run_batch(scheduler, batch)

    def _all_of(self, tokens: Any) -> Iterator[tuple[Any, Any]]:
        for layer in range(LAYERS):
            for name, buffer in self._buffers(layer):
                yield buffer, self._rows(name, tokens)

    @property
    def more(self) -> dict[str, Any]:
        """What the tree of prefixes gives with each transfer: index keys go with the KV."""
        storage = module("mem_cache.hicache_storage")
        if "extra_pools" not in inspect.signature(self.controller.write).parameters or not self.indexed:
            return {}
        names, made = storage.PoolName, storage.PoolTransfer
        given = dict(name=names.INDEXER, hit_policy=storage.PoolHitPolicy.ALL_PAGES, indices_from_pool=names.KV)
        return {"extra_pools": [made(**accepted(made, given))]}

    def allocate(self, tokens: int) -> Any:
        return self.allocator.alloc(tokens)

    def forward(self, writes: Any, consumer: int | None, reads: Any = None) -> Any:
        """A batch on the forward stream, as the scheduler launches it; the event behind it. consumer: the copy that it waits
        for; -1 is none, None leaves what the engine has set."""
        import torch

        if consumer is not None:
            self.controller.layer_done_counter.set_consumer(consumer)
        with torch.cuda.stream(self.forward_stream):
            self.forward_stream.wait_stream(torch.cuda.default_stream())
            for layer in range(LAYERS):
                for name, buffer in self._buffers(layer):
                    self.order.launch("the new tokens", writes=[(buffer, self._rows(name, writes))])
                if reads is not None:
                    self._attend(layer, reads)
            while self._joins:
                self.forward_stream.wait_stream(self._joins.pop())
            return torch.cuda.current_stream().record_event()

    def acknowledge(self) -> None:
        """The scheduler sees that copies are done."""
        for queue in (self.controller.ack_write_queue, self.controller.ack_load_queue):
            while queue:
                queue.pop(0).finish_event.synchronize()

    def _attend(self, layer: int, reads: Any) -> None:
        """Each accessor of the pool on a stream of its own, behind the forward stream: none profits from another's wait."""
        pool, pages = self.pool, self._rows("index keys", reads)
        accessors = [("get_key_buffer", "KV"), ("get_value_buffer", "KV")] if self.indexed else [*zip(_ACCESSORS, "KV")]
        with self._index_kernels(pages):
            for accessor, name in [*accessors, *((one, "index keys") for one in _INDEX_ACCESSORS)]:
                method = getattr(pool, accessor, None)
                if method is None:
                    continue
                with self._beside(accessor):
                    given = dict(layer_id=layer, seq_len=len(reads), page_indices=pages, seq_len_tensor=None)
                    buffer = method(**accepted(method, {**given, "seq_len_sum": 0, "max_seq_len": 0}))
                    if buffer is not None:
                        self.order.launch(accessor, [(buffer, self._rows(name, reads))])

    @contextmanager
    def _beside(self, name: str) -> Iterator[None]:
        import torch

        stream = self.order.stream(f"forward ({name})")
        stream.wait_stream(self.forward_stream)
        with torch.cuda.stream(stream):
            yield
        self._joins.append(stream)

    @contextmanager
    def _index_kernels(self, pages: Any) -> Iterator[None]:
        homes = filter(None, (sys.modules[type(self.pool).__module__], module("mem_cache.index_key_cache")))
        accessors = next((one for home in homes if (one := getattr(home, "index_buf_accessor", None))), None)
        with ExitStack() as stack:
            for name in ("GetK", "GetS", "GetKAndS"):
                if hasattr(accessors, name):
                    kind = getattr(accessors, name)
                    read = lambda pool, buf, *_, name=name, **__: self.order.launch(name, [(buf, pages)])  # noqa: E731
                    stack.enter_context(replaced(kind, "execute", staticmethod(read)))
            yield

    def _buffers(self, layer: int) -> Iterator[tuple[str, Any]]:
        if not self.indexed:
            yield "K", self.pool.k_buffer[layer]
            yield "V", self.pool.v_buffer[layer]
            return
        yield "KV", self.pool.kv_buffer[layer]
        yield "index keys", self.pool.index_k_with_scale_buffer[layer]

    def _rows(self, name: str, tokens: Any) -> Any:
        with self.order.silent():
            return np.unique(tokens.numpy() // (self.page if name == "index keys" else 1))


def fence(controller: Any, stream: Any, without: str = "") -> None:
    """What the scheduler tells the controller of its streams, by its own statements but the one of the attribute `without`."""
    for attribute, code in fences().items():
        if attribute != without:
            worker = SimpleNamespace(model_runner=SimpleNamespace(forward_stream=stream))
            tree = SimpleNamespace(cache_controller=controller)
            server = SimpleNamespace(tp_worker=worker, forward_stream=stream, tree_cache=tree)
            exec(code, {"cache_controller": controller, "self": server})  # nosec B102


@functools.cache
def fences() -> dict[str, CodeType]:
    """The scheduler's statements that give the controller a stream to wait for: attribute -> code."""
    spec = importlib.util.find_spec("sglang.srt.managers.scheduler")
    assert spec and spec.origin
    text, found = Path(spec.origin).read_text(), {}
    for statement in ast.walk(ast.parse(text)) if "_fence_stream" in text else ():
        if not isinstance(statement, ast.Assign):
            continue
        target = statement.targets[0]
        if isinstance(target, ast.Attribute) and target.attr.endswith("_fence_stream"):
            found[target.attr] = compile(ast.Module([statement], []), spec.origin, "exec")
    return found


def _with_indexer(server: HiCache, io: str) -> Any:
    """The controller of a release that keeps index keys in a host pool of their own; None for others."""
    assembler = module("mem_cache.hybrid_cache.hybrid_pool_assembler")
    names = ("attach_hybrid_nsa_pool_to_hiradix_cache", "attach_hybrid_dsa_pool_to_hiradix_cache")
    attach = next((getattr(assembler, name) for name in names if hasattr(assembler, name)), None)
    if attach is None:
        return None
    launched = SimpleNamespace(
        hicache_ratio=4.0, hicache_size=0, hicache_mem_layout="layer_first", hicache_storage_backend=None,
        hicache_write_policy="write_through", hicache_io_backend=io, served_model_name="model",
        hicache_host_memory_mode="cache",
    )  # fmt: skip
    params = SimpleNamespace(
        token_to_kv_pool_allocator=server.allocator, page_size=server.page, attn_cp_rank=0, attn_cp_size=1,
        tp_cache_group=None, attn_cp_cache_group=None, attn_tp_cache_group=None, pp_cache_group=None, mtp_draft_device_pools=(),
        pp_rank=0, pp_size=1,
    )  # fmt: skip
    tree = SimpleNamespace(kv_cache=server.pool, page_size=server.page, tp_group=None, pp_rank=0, pp_size=1)
    given = dict(radix_cache=tree, params=params, server_args=launched, extra_config={}, prefetch_threshold=256)
    more = dict(enable_storage_metrics=False, load_cache_event=None, attn_cp_group=None, attn_tp_group=None)
    with ExitStack() as stack:
        for home in filter(None, (assembler, module("mem_cache.pool_host.common"))):
            for name in ("get_memory", "get_serving"):  # the newest releases ask what was published
                if hasattr(home, name):
                    stack.enter_context(replaced(home, name, lambda: launched))
        attach(**accepted(attach, {**given, **more}))
    return tree.cache_controller


def _pool(indexed: bool, tokens: int, page: int) -> Any:
    import torch

    pools = module("mem_cache.memory_pool")
    given = dict(
        size=tokens, page_size=page, dtype=torch.bfloat16, layer_num=LAYERS, device="cuda", enable_memory_saver=False,
        head_num=1, head_dim=8, kv_lora_rank=512, qk_rope_head_dim=64, index_head_dim=128, kv_cache_dim=576,
        enable_alt_stream=False,
    )  # fmt: skip
    names = ("NSATokenToKVPool", "DSATokenToKVPool") if indexed else ("MHATokenToKVPool",)
    kind = next((getattr(pools, name) for name in names if hasattr(pools, name)), None)
    if kind is None:
        raise NoSuchPath("no pool with index keys")
    return kind(**accepted(kind, given))


def _allocator(pool: Any, tokens: int, page: int, indexed: bool) -> Any:
    import torch

    home = module("mem_cache.allocator")
    kind = home.PagedTokenToKVPoolAllocator if indexed else home.TokenToKVPoolAllocator
    given = dict(size=tokens, page_size=page, dtype=torch.bfloat16, device="cuda", kvcache=pool, need_sort=False)
    return kind(**accepted(kind, given))


def _host_pool(pool: Any, indexed: bool, page: int) -> Any:
    homes = [home for name in _HOSTS if (home := module(name))]
    names = ("NSATokenToKVPoolHost", "DSATokenToKVPoolHost", "MLATokenToKVPoolHost") if indexed else ("MHATokenToKVPoolHost",)
    kind = next(getattr(home, name) for name in names for home in homes if hasattr(home, name))
    given = dict(device_pool=pool, host_to_device_ratio=4.0, host_size=0, page_size=page, layout="layer_first")
    if "buffer_info" in inspect.signature(kind).parameters:  # 0.5.23
        given |= dict(buffer_info=pool.get_device_pool_infos()[0].buffer_info, device_capacity_tokens=pool.size)
        given |= dict(start_layer=pool.start_layer, end_layer=pool.end_layer)
    return kind(**accepted(kind, given))


@contextmanager
def host_memory() -> Iterator[None]:
    """A host with room for any pool."""
    import psutil

    plenty = SimpleNamespace(available=1 << 50, total=1 << 50)
    with replaced(psutil, "virtual_memory", lambda: plenty):
        yield


@contextmanager
def copy_kernels(order: Order) -> Iterator[None]:
    """The kernels that copy KV between the pools, told to `order` with the rows that they read and write."""
    with ExitStack() as stack:
        for home in filter(None, map(module, _HOSTS)):
            for name in {*_KERNELS.findall(inspect.getsource(home))}:  # imported on a GPU alone
                stack.enter_context(having(home, name, _copying(order, name)))
        yield


def _copying(order: Order, kernel: str) -> Callable[..., None]:
    def copy(**given: Any) -> None:
        sides: dict[str, list[Any]] = {"src": [], "dst": []}
        indices = {side: given[f"{side}_indices"] for side in sides}
        with order.silent():
            for name, value in given.items():
                side = name[:3]
                if side in sides and not name.endswith(("_indices", "_dim", "_ptr")):
                    sides[side] += _touched(value, indices[side].numpy(), given.get("item_size"))
        own = [one for one in indices.values() if one.is_cuda]
        order.launch(kernel, [*sides["src"], *own], sides["dst"])

    return copy


def _touched(value: Any, rows: Any, size: Any) -> list[Any]:
    import torch

    if isinstance(value, (list, tuple)):
        return [(one, rows) for one in value]
    if value.dtype == torch.uint64:  # a table of pointers, one a layer
        return [(pointer + int(row) * size, size) for pointer in value.tolist() for row in rows]
    return [(value, rows)]
