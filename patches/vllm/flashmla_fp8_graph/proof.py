"""Proof of vllm.flashmla-fp8-graph: decode steps of one to eight requests through graphs captured for fewer sizes.

Real: `build` and `build_for_cudagraph_capture` of the metadata, and the layer's decode. Emulated: the graph, and FlashMLA's
kernels with their tile scheduler. The runner captures with one key for each request; requests of a step have up to 600.
"""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.emulators import flashmla
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, cumulative, observe, replaced

_FLASHMLA = "vllm.v1.attention.backends.mla.flashmla"

_SIZES, _ROOM, _PAGES = (1, 2, 4, 8), 8, 10  # captured batch sizes, requests, pages of a request
_HEADS, _LORA, _ROPE = 16, 512, 64
_Q_SCALE, _K_SCALE = 0.5, 0.25
_SCALE = (_LORA + _ROPE) ** -0.5


class _Server:
    """What the runner keeps between steps: cache, block table, inputs of the graphs, and a graph per batch size."""

    def __init__(self, module: Any, draw: Any, cache: str, full_graphs: bool, tokens: int):
        import torch

        self.module, self.draw, d = module, draw, _LORA + _ROPE
        self.tokens, self.full_graphs = tokens, full_graphs
        self.dtype = torch.float8_e4m3fn if cache == "fp8" else torch.bfloat16
        self.scales = (_Q_SCALE, _K_SCALE) if cache == "fp8" else (1.0, 1.0)
        self.cache = torch.randn(_ROOM * _PAGES, flashmla.BLOCK, d, generator=draw).to(self.dtype)
        self.pages = torch.randperm(_ROOM * _PAGES, generator=draw).view(_ROOM, _PAGES).int()
        self.q = torch.zeros(_ROOM * tokens, _HEADS, d, dtype=self.dtype)
        self.seq_lens = torch.zeros(_ROOM, dtype=torch.int32)
        self.builder, self.impl = _builder(module, cache, full_graphs), _impl(module, cache)
        self.graphs: dict[int, tuple] = {}

    def step(self, count: int) -> Observation:
        """Requests of drawn lengths, padded to a captured size; how right their outputs are."""
        import torch

        size = next(size for size in _SIZES if size >= count)
        if self.full_graphs and size not in self.graphs:
            self.graphs[size] = self._captured(size)
        lens = torch.randint(self.tokens, _PAGES * flashmla.BLOCK, (count,), generator=self.draw).tolist()
        self.seq_lens.zero_()
        self.seq_lens[:count] = torch.tensor(lens)
        self.q.copy_(torch.randn(self.q.shape, generator=self.draw))
        metadata = self.builder.build(0, self._batch(size))
        if self.full_graphs:
            graph, out = self.graphs[size]
            graph.replay()
        else:
            out = self._forward(Graph(), metadata, size)
        reference = torch.cat([self._reference(b, n) for b, n in enumerate(lens)])
        return observe(out.reshape(-1, _HEADS, _LORA)[: len(reference)], reference)

    def _captured(self, size: int) -> tuple:
        graph = Graph()
        self.seq_lens[:size] = self.tokens
        metadata = self.builder.build_for_cudagraph_capture(self._batch(size))
        return graph, self._forward(graph, metadata, size)

    def _forward(self, graph: Graph, metadata: Any, size: int) -> Any:
        kernel, module = graph.recorded(flashmla.flash_mla_with_kvcache), self.module
        module.flash_mla_with_kvcache = module.flash_mla_with_kvcache_fp8 = kernel
        layer = SimpleNamespace(**{f"_{name}_scale": _tensor(scale) for name, scale in zip("qk", self.scales)})
        return _forward(self.impl)(self.q[: size * self.tokens], self.cache, metadata, layer)[0]

    def _batch(self, size: int) -> Any:
        starts = cumulative((self.tokens,) * size)
        lens = self.seq_lens[:size].clone()
        batch = SimpleNamespace(
            num_reqs=size, num_actual_tokens=size * self.tokens, max_query_len=self.tokens, max_seq_len=int(lens.max()),
            causal=True, query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=self.seq_lens[:size], slot_mapping=None,
            block_table_tensor=self.pages[:size], seq_lens_cpu=lens, seq_lens_cpu_upper_bound=lens, dcp_local_seq_lens=None,
            dcp_local_seq_lens_cpu=None,
        )  # fmt: skip
        batch.compute_num_computed_tokens = lambda: lens - self.tokens
        batch.num_computed_tokens_cpu = lens - self.tokens
        return batch

    def _reference(self, request: int, length: int) -> Any:
        rows = slice(request * self.tokens, (request + 1) * self.tokens)
        keys = self.cache[self.pages[request].long()].flatten(0, 1)[:length].double() * self.scales[1]
        wide = keys[:, None].expand(-1, _HEADS, -1)
        return emulators.attention(self.q[rows].double() * self.scales[0], wide, wide[..., :_LORA], _SCALE, causal=True)[0]


def _builder(module: Any, cache: str, full_graphs: bool) -> Any:
    """The metadata builder with what its `__init__` keeps on a GPU of `flashmla.SMS`."""
    import torch

    module.get_mla_metadata = partial(_unquantised, module) if hasattr(module, "FlashMLASchedMeta") else flashmla.schedule
    if hasattr(module, "get_mla_metadata_dense_fp8"):
        entry: Any = sys.modules[module.get_mla_metadata_dense_fp8.__module__]
        entry._is_flashmla_available = lambda: (True, None)
        ops: Any = torch.ops
        ops._flashmla_extension_C = SimpleNamespace(get_mla_decoding_metadata_dense_fp8=flashmla.schedule)
    builder = object.__new__(module.FlashMLAMetadataBuilder)
    mode = SimpleNamespace(has_full_cudagraphs=lambda: full_graphs)
    tiles, splits = torch.zeros(flashmla.SMS, 8, dtype=torch.int32), torch.zeros(_ROOM + 1, dtype=torch.int32)
    builder.__dict__.update(
        device=torch.device("cpu"), model_config=SimpleNamespace(get_head_size=lambda: _LORA + _ROPE),
        metadata_cls=module.FlashMLAMetadata, compilation_config=SimpleNamespace(cudagraph_mode=mode),
        num_q_heads=_HEADS, is_fp8_kvcache=cache == "fp8", dcp_world_size=1, use_pcp=False, dcp_rank=0,
        cg_buf_tile_scheduler_metadata=tiles if full_graphs else None, cg_buf_num_splits=splits if full_graphs else None,
        _use_fi_prefill=False, _use_cudnn_prefill=False, _use_trtllm_ragged_prefill=False,
        non_causal_multi_token_decode=False,
    )  # fmt: skip
    return builder


def _unquantised(module: Any, *args: Any, **kwargs: Any) -> tuple:
    """From 0.15: an empty object, which the kernel for an unquantised cache fills when it is launched."""
    return module.FlashMLASchedMeta(), None


def _impl(module: Any, cache: str) -> Any:
    kind = module.FlashMLAImpl
    kind.__abstractmethods__ = frozenset()
    impl = object.__new__(kind)
    impl.__dict__.update(
        num_heads=_HEADS, scale=_SCALE, kv_lora_rank=_LORA, kv_cache_dtype=cache, need_to_return_lse_for_decode=False,
        dcp_world_size=1,
    )  # fmt: skip
    return impl


def _forward(impl: Any) -> Any:
    return impl.forward_mqa if hasattr(impl, "forward_mqa") else impl._forward_decode


def _tensor(scale: float) -> Any:
    import torch

    return torch.tensor(scale)


class Proof(proof.Proof):
    modules = (_FLASHMLA,)
    full_graphs = True
    around = {"`--compilation-config.cudagraph_mode PIECEWISE`": {"full_graphs": False}}

    def prepare(self) -> None:
        if "layer" not in code_of(_forward(self.engine[_FLASHMLA].FlashMLAImpl)).co_varnames:  # up to 0.10.1
            raise NoSuchPath("FlashMLA takes no FP8 cache")

    def scenario(self, seed: int) -> Observation:
        return self._run(seed, "fp8", full_graphs=self.full_graphs)

    def control(self, seed: int) -> Observation:
        """A cache that is not quantised, and an FP8 cache without full graphs."""
        return combine(self._run(seed, "auto", full_graphs=True), self._run(seed, "fp8", full_graphs=False))

    def _run(self, seed: int, cache: str, full_graphs: bool) -> Observation:
        import torch

        draw, seen = torch.Generator().manual_seed(seed), []
        spec_decode = self.engine[_FLASHMLA].FlashMLAMetadataBuilder.reorder_batch_threshold > 1  # up to 0.11.0 one token each
        for tokens in (1, 2) if spec_decode else (1,):
            server = _Server(self.engine[_FLASHMLA], draw, cache, full_graphs, tokens)
            seen += [server.step(count) for count in range(1, _ROOM + 1)]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.kept

        def one_part_missed(buffer: Any, made: Any) -> Any:
            first = buffer[0].clone()
            result = real(buffer, made)
            result[0] = first
            return result

        return {
            "the correction does nothing": replaced(wrap, "kept", lambda buffer, made: made),
            "the tile schedule alone keeps its address": replaced(
                wrap, "kept", lambda buffer, made: real(buffer, made) if made.dim() > 1 else made
            ),
            "the number of splits alone keeps its address": replaced(
                wrap, "kept", lambda buffer, made: real(buffer, made) if made.dim() == 1 else made
            ),
            "the first part keeps its old tiles": replaced(wrap, "kept", one_part_missed),
        }
