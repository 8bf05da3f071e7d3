"""A pool of blocks in which all layers of a group lie within one block, on Model Runner V1: 0.27.0-0.28.0.

As in `shared_pool`. Real, too: what the layers of DeepSeek-V4 keep in the cache, and how the engine lays them out. Emulated:
the rest of these layers. Each request fills the blocks that it has, and looks in each step whether they are as it left them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from attnfix.patches.lab.proof import NoSuchPath, Observation

from .models import DENSE
from .scheduling import SCHEDULER, case
from .shared_pool import RUNNERS, WINDOWS, Pool, SharedPool

__all__ = ["WINDOWS", "PackedPool", "case", "talk"]

_DSV4, _SWA = "vllm.models.deepseek_v4", "vllm.v1.attention.backends.mla.sparse_swa"
_HEAD, _INDEXER, _WINDOW = 512, 128, 128
#: Tokens that a layer's entry stands for; 1 of one that has its window alone
_RATIOS = (1, 4, 128)
#: Groups of layers whose new blocks are cleared in each of these releases
_FULL = "FullAttentionSpec", "MLAAttentionSpec"
_BEHIND = 1 << 21  # bytes behind a pool, which are nobody's


class Packed(Pool):
    """together: whether the engine's connector for benchmarks wants layers in one block. Without a `model`, the layers are
    DeepSeek-V4's, which are so by themselves."""

    def __init__(self, model: dict[str, Any] = DENSE, *, together: bool = False, **more: Any):
        self._dsv4 = model is DENSE
        if self._dsv4:
            more = {"page_size": 256, "kv_cache_dtype": "fp8_ds_mla", **more}
        if together:
            transfer: Any = import_module("vllm.config").KVTransferConfig
            extra = {"enable_cross_layers_blocks": "True"}
            given = dict(kv_connector="DecodeBenchConnector", kv_role="kv_both", kv_connector_extra_config=extra)
            more["vllm"] = {"kv_transfer_config": transfer(**given)}
        super().__init__(model, **{"blocks": 120, "context": 512, **more})

    def _add_layers(self) -> None:
        if not self._dsv4:
            return super()._add_layers()
        for ratio in _RATIOS:
            self._add_layer(ratio)

    def _add_layer(self, ratio: int) -> None:
        """The caches of one layer. Each has an index of its own: beside a GPU alone, the engine takes several of one index."""
        import torch

        attention: Any = import_module(f"{_DSV4}.attention")
        states: Any = import_module(f"{_DSV4}.compressor").CompressorStateCache
        cache, known = self.config.cache_config, self.config.compilation_config.static_forward_context

        def named(part: str) -> str:
            return f"model.layers.{len(known)}.attn.{part}"

        import_module(_SWA).DeepseekV4SWACache(_HEAD, _WINDOW, torch.uint8, named("swa_cache"), cache)
        if ratio == 1:
            return
        cls: Any = type("Layer", (attention.DeepseekV4Attention,), {})
        cls.__abstractmethods__ = frozenset()  # what a platform's kernels do
        layer: Any = object.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer.compress_ratio, layer.head_dim, layer.kv_cache = ratio, _HEAD, torch.tensor([])
        layer.kv_cache_dtype, layer.kv_cache_torch_dtype = "fp8_ds_mla", torch.uint8
        layer.backend_cls = import_module(f"{_DSV4}.sparse_mla").DeepseekV4FlashMLABackend
        known[named("mla")] = layer
        parts = 2 * (1 + (ratio == 4))
        states(parts * _HEAD, torch.float32, ratio, named("compressor"))
        if ratio == 4:
            attention.DeepseekV4IndexerCache(_INDEXER + 4, torch.uint8, named("indexer"), cache, ratio)
            states(parts * _INDEXER, torch.float32, ratio, named("indexer.compressor"))

    def _cache_of_runner(self) -> Any:
        """It says of each layer what it keeps. The scheduler's says it of a group."""
        return self.workers_config

    def _specs(self) -> dict[str, Any]:
        """Behind a pool is memory that is somebody else's."""
        import torch

        specs = super()._specs()
        self.runner.initialize_metadata_builders = lambda *args, **kwargs: None  # nobody attends
        allocate = self.runner._allocate_kv_cache_tensors

        def with_more(config: Any) -> dict[str, Any]:
            made = allocate(config)
            larger = {tensor.data_ptr(): torch.zeros(tensor.numel() + _BEHIND, dtype=tensor.dtype) for tensor in made.values()}
            self.behind = [tensor[-_BEHIND:] for tensor in larger.values()]
            return {name: larger[tensor.data_ptr()][: tensor.numel()] for name, tensor in made.items()}

        self.runner._allocate_kv_cache_tensors = with_more
        return specs


class Holding:
    """Requests that fill their blocks, and look at them. A block's bytes are of its number."""

    def __init__(self, engine: Packed, seed: int):
        self.engine, self.draw = engine, random.Random(seed)
        self.wrong: set[str] = set()  # requests, or what lies behind the pool
        self.filled: set[tuple[str, int, int]] = set()  # request, group, block
        self.asked = 0
        self.seen: list[Any] = []
        for group, _ in enumerate(engine.kv_cache_config.kv_cache_groups):  # the pool was in use for long
            for layer in self._layers(group):
                layer.fill_(255)

    def ask(self, prompt: int, output: int) -> None:
        self.asked += 1
        self.engine.add([self.draw.randrange(4, 128) for _ in range(prompt)], output)

    def step(self) -> None:
        self.engine.step(self._run)

    def _run(self, step: Any) -> tuple[dict[str, list[int]]]:
        manager, running = self.engine.scheduler.kv_cache_manager, self.engine.scheduler.requests
        computed = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        computed |= dict(zip(step.scheduled_cached_reqs.req_ids, step.scheduled_cached_reqs.num_computed_tokens))
        self.engine.prepare(step)
        held = {
            (name, group, block)
            for name in step.num_scheduled_tokens
            for group, blocks in enumerate(manager.get_block_ids(name))
            for block in blocks
            if block
        }
        fresh = set(step.new_block_ids_to_zero or ())
        for group, of in enumerate(self.engine.kv_cache_config.kv_cache_groups):
            mine = sorted((name, block) for name, at, block in held if at == group)
            zeroed = fresh if type(of.kv_cache_spec).__name__ in _FULL else set()
            kept = [(*row, _of(row[1])) for row in mine if (row[0], group, row[1]) in self.filled and row[1] not in fresh]
            new = [(*row, 0) for row in mine if row[1] in zeroed]
            for layer in self._layers(group):
                self._expect(layer, kept + new)
                self._write(layer, [block for _, block in mine])
        for behind in self.engine.behind:
            if behind.any():
                self.wrong.add("behind")
            behind.zero_()
        self.seen.append((sorted(held), sorted(fresh), sorted(self.wrong)))
        self.filled = held
        done = {name: computed[name] + new for name, new in step.num_scheduled_tokens.items()}
        return ({name: [4] for name, tokens in done.items() if tokens >= running[name].num_tokens},)

    def _expect(self, layer: Any, rows: list[tuple[str, int, int]]) -> None:
        """rows: (request, block, what each of its bytes is)."""
        import torch

        if rows:
            blocks, values = (torch.tensor([row[at] for row in rows]) for at in (1, 2))
            differ = (layer[blocks].flatten(1) != values[:, None]).any(1).tolist()
            self.wrong.update(name for (name, *_), differs in zip(rows, differ) if differs)

    def _write(self, layer: Any, blocks: list[int]) -> None:
        import torch

        if blocks:
            values = torch.tensor([_of(block) for block in blocks], dtype=torch.uint8)
            layer[torch.tensor(blocks)] = values.view(-1, *[1] * (layer.ndim - 1))

    def _layers(self, group: int) -> Iterator[Any]:
        """[blocks, …] as bytes."""
        import torch

        known = self.engine.config.compilation_config.static_forward_context
        for name in self.engine.kv_cache_config.kv_cache_groups[group].layer_names:
            yield known[name].kv_cache.view(torch.uint8)

    def observe(self) -> Observation:
        return Observation(len(self.wrong) / self.asked, hashlib.sha256(repr(self.seen).encode()).hexdigest())


def _of(block: int) -> int:
    return 1 + block % 250


def talk(waves: int = 6, prompt: tuple[int, int] = (60, 300)) -> Callable[[Holding], None]:
    """Waves of requests, each of which begins where the last one decodes."""

    def ask(server: Holding) -> None:
        for _ in range(waves):
            for _ in range(server.draw.choice((1, 2))):
                server.ask(server.draw.randint(*prompt), server.draw.randint(10, 30))
            for _ in range(server.draw.randint(5, 12)):
                server.step()

    return ask


class PackedPool(SharedPool):
    """Base of the proofs."""

    kind, pool = Holding, Packed
    modules: tuple[str, ...] = (RUNNERS["V1"], SCHEDULER, "vllm.v1.worker.utils", "vllm.v1.kv_cache_interface")
    measure = "share of requests from whose blocks a step took bytes, or whose new blocks it did not clear"

    def prepare(self) -> None:
        super().prepare()
        if not self._has("GPUModelRunner._allocate_kv_cache_tensors"):
            raise NoSuchPath("from 0.29.0 each part of a block is cleared by its own size")
