"""Proof of vllm.fa3-dcp-graph: two ranks decode through graphs captured for fewer sizes, and prefill without one.

Real: the builder's `build`, `_forward_with_dcp` with the combine over the ranks, whose Triton kernel runs in the interpreter.
Emulated: FlashAttention 3 and its scheduler, the merge, the collectives, and the graph: a replay runs the layer again with the
metadata of capture. So its numbers are those of capture, and its tensors hold what lies at their addresses.
"""

from __future__ import annotations

import ast
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.emulators import flash_attention as flash
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, cumulative, observe, replaced
from attnfix.patches.lab.vllm import dcp_ranks

_FLASH = "vllm.v1.attention.backends.flash_attn"

_RANKS, _HEADS, _D = 2, 2, 64  # query heads of each rank, over one KV head
_SIZES, _ROOM, _PAGE, _PAGES = (1, 2, 4), 4, 16, 5  # captured batch sizes, requests; tokens per page, pages per rank
_MAX_SPLITS, _MAX_LEN = 32, 4096
_PREFILL = (4, 7), (3, 5)  # context and new tokens of a batch as large as one that is captured, but run without a graph


def _turns_full_graphs_off() -> bool:
    """Whether VllmConfig sets the mode of graphs to PIECEWISE under a condition on the DCP size (up to 0.12.0)."""
    engine = Path(sys.modules["vllm"].__path__[0])
    found = [path for path in (engine / "config" / "vllm.py", engine / "config" / "__init__.py") if path.exists()]
    branches = [node for path in found for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.If)]
    return any(
        "decode_context_parallel_size" in ast.unparse(branch.test)
        and any("cudagraph_mode = CUDAGraphMode.PIECEWISE" in ast.unparse(line) for line in branch.body)
        for branch in branches
    )


class _Server:
    """All ranks, and what their runners keep between steps. Token i of a context lies on rank i % 2."""

    def __init__(self, module: Any, draw: Any, full_graphs: bool):
        import torch

        self.module, self.draw, self.group = module, draw, dcp_ranks.Group(_RANKS)
        module.get_dcp_group = lambda: self.group
        tokens = max(_ROOM, sum(_PREFILL[1]))
        self.q = torch.zeros(tokens, _RANKS * _HEADS, _D, dtype=torch.bfloat16)
        self.k, self.v = (torch.zeros(tokens, 1, _D, dtype=torch.bfloat16) for _ in "kv")
        self.caches = torch.randn(_RANKS, 2, _ROOM * _PAGES, _PAGE, 1, _D, generator=draw).bfloat16()
        self.pages = torch.randperm(_ROOM * _PAGES, generator=draw).view(_ROOM, _PAGES).int()
        self.starts, self.seq_lens = torch.zeros(_ROOM + 1, dtype=torch.int32), torch.zeros(_ROOM, dtype=torch.int32)
        self.ranks = [_Rank(self, rank, full_graphs) for rank in range(_RANKS)]

    def step(self, context: tuple[int, ...], new: tuple[int, ...], graph: bool) -> Observation:
        """Requests with that many cached and new tokens; how right the outputs of the new ones are."""
        import torch

        size = next(size for size in _SIZES if size >= len(new)) if graph else len(new)
        if graph and size not in self.ranks[0].graphs:
            # With context only where a graph would be captured without it otherwise (from 0.26.0)
            self._fill((_RANKS * hasattr(self.module, "should_skip_dcp_context_attention"),) * size, (1,) * size)
            self.group.on_all(lambda rank: self.ranks[rank].capture(size))
        for x in (self.q, self.k, self.v):
            x.copy_(torch.randn(x.shape, generator=self.draw))
        self._fill(context, new)
        outs = self.group.on_all(lambda rank: self.ranks[rank].run(size, graph))
        reference = self._reference(context, new)
        return observe(torch.cat(outs, 1)[: len(reference)], reference)

    def _fill(self, context: tuple[int, ...], new: tuple[int, ...]) -> None:
        import torch

        self.seq_lens.zero_()
        self.seq_lens[: len(new)] = torch.tensor([n + m for n, m in zip(context, new)])
        self.starts.fill_(sum(new))
        self.starts[: len(new) + 1] = cumulative(new)

    def _reference(self, context: tuple[int, ...], new: tuple[int, ...]) -> Any:
        import torch

        at, outs = cumulative(new).tolist(), []
        for b, n in enumerate(context):
            rows = slice(at[b], at[b + 1])
            shares = self.caches[:, :, self.pages[b].long()].flatten(2, 3)  # [ranks, 2, tokens of a rank, 1, d]
            cached = shares.permute(1, 2, 0, 3, 4).flatten(1, 2)[:, :n]
            k, v = (torch.cat([part, x[rows]]).expand(-1, _RANKS * _HEADS, -1) for part, x in zip(cached, (self.k, self.v)))
            outs.append(emulators.attention(self.q[rows], k, v, _D**-0.5, causal=True)[0])
        return torch.cat(outs)


class _Rank:
    """One rank: its metadata builder, its layer, its graphs."""

    def __init__(self, server: _Server, rank: int, full_graphs: bool):
        import torch

        self.server = server
        self.graphs: dict[int, Graph] = {}
        self.heads = slice(rank * _HEADS, (rank + 1) * _HEADS)
        self.cache = server.caches[rank]
        self.q = torch.zeros(len(server.q), _HEADS, _D, dtype=torch.bfloat16)
        self.out = torch.zeros_like(self.q)
        self.builder, self.impl = _builder(server.module, rank, full_graphs), _impl(server.module, rank)

    def capture(self, size: int) -> None:
        batch = self._batch(size, size)
        batch.max_seq_len = _MAX_LEN
        metadata = self.builder.build_for_cudagraph_capture(batch)
        self.graphs[size] = graph = Graph()
        self._forward(graph.recorded(self.impl._forward_with_dcp), metadata, size)

    def run(self, size: int, graph: bool) -> Any:
        self.q.copy_(self.server.q[:, self.heads])
        tokens = size if graph else int(self.server.starts[size])
        metadata = self.builder.build(0, self._batch(size, tokens))
        if graph:
            self.graphs[size].replay()
        else:
            self._forward(self.impl._forward_with_dcp, metadata, tokens)
        return self.out

    def _forward(self, forward: Any, metadata: Any, tokens: int) -> None:
        k, v = self.server.k[:tokens], self.server.v[:tokens]
        forward(self.q[:tokens], k, v, self.cache[0], self.cache[1], self.out[:tokens], metadata)

    def _batch(self, size: int, tokens: int) -> Any:
        server = self.server
        lens, starts = server.seq_lens[:size], server.starts[: size + 1]
        return SimpleNamespace(
            num_reqs=size, num_actual_tokens=tokens, max_query_len=int(starts.diff().max()), max_seq_len=int(lens.max()),
            query_start_loc=starts, query_start_loc_cpu=starts.clone(), seq_lens=lens, seq_lens_cpu=lens.clone(),
            seq_lens_cpu_upper_bound=lens.clone(), block_table_tensor=server.pages[:size], slot_mapping=None, causal=True,
            mm_req_doc_ranges=None, rswa_prefix_lens=None, dcp_local_seq_lens=None, is_prefilling=None,
        )  # fmt: skip


def _builder(module: Any, rank: int, full_graphs: bool) -> Any:
    """The metadata builder with what its `__init__` keeps on Hopper."""
    import torch

    builder = object.__new__(module.FlashAttentionMetadataBuilder)
    scheduler = SimpleNamespace(max_num_seqs=_ROOM)
    builder.__dict__.update(
        vllm_config=SimpleNamespace(scheduler_config=scheduler), cache_config=SimpleNamespace(cache_dtype="auto"),
        kv_cache_spec=SimpleNamespace(sliding_window=None),
        device=torch.device("cpu"), num_heads_q=_HEADS, num_heads_kv=1, headdim=_D, block_size=_PAGE,
        kv_cache_dtype=torch.bfloat16, aot_schedule=True, aot_sliding_window=(-1, -1), dcp_world_size=_RANKS, dcp_rank=rank,
        cp_kv_cache_interleave_size=1, use_full_cuda_graph=full_graphs, max_cudagraph_size=sum(_PREFILL[1]),
        max_num_splits=_MAX_SPLITS if full_graphs else 0,
        scheduler_metadata=torch.zeros(1 + 8 * _ROOM, dtype=torch.int32),
        _dcp_context_kv_lens=torch.zeros(_ROOM, dtype=torch.int32),  # from 0.20.0
        rswa_window=None, mm_prefix_query_ranges_np=None,
    )  # fmt: skip
    return builder


def _impl(module: Any, rank: int) -> Any:
    import torch

    impl = object.__new__(module.FlashAttentionImpl)
    impl.__dict__.update(
        num_heads=_HEADS, num_kv_heads=1, head_size=_D, scale=_D**-0.5, alibi_slopes=None, sliding_window=None,
        logits_soft_cap=0.0, vllm_flash_attn_version=3, dcp_world_size=_RANKS, dcp_rank=rank, sinks=None,
        dcp_combine=module.cp_lse_ag_out_rs, _dcp_dtype=torch.bfloat16, _dcp_max_num_tokens=_ROOM,
    )  # fmt: skip
    return impl


def _workspaces(*specs: tuple) -> list:
    import torch

    return [torch.empty(shape, dtype=dtype) for shape, dtype in specs]


class Proof(proof.Proof):
    modules = (_FLASH,)
    full_graphs = True
    around = {"`--compilation-config.cudagraph_mode PIECEWISE`": {"full_graphs": False}}

    def prepare(self) -> None:
        module = self.engine[_FLASH]
        if not hasattr(module.FlashAttentionImpl, "_forward_with_dcp"):
            raise NoSuchPath("FlashAttention knows no decode context parallelism")
        if _turns_full_graphs_off():
            raise NoSuchPath("vLLM turns full CUDA graphs off under decode context parallelism")
        dcp_ranks.prepare(module)
        module.get_scheduler_metadata = flash.get_scheduler_metadata
        module.flash_attn_varlen_func = flash.flash_attn_varlen_func
        module.merge_attn_states = emulators.merge_attn_states
        module.current_workspace_manager = lambda: SimpleNamespace(get_simultaneous=_workspaces)  # from 0.20.0

    def scenario(self, seed: int) -> Observation:
        return self._run(seed, full_graphs=self.full_graphs)

    def control(self, seed: int) -> Observation:
        """Without full graphs."""
        return self._run(seed, full_graphs=False)

    def _run(self, seed: int, full_graphs: bool) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        server = _Server(self.engine[_FLASH], draw, full_graphs)
        counts = range(1, _ROOM + 1)
        contexts = [torch.randint(_RANKS, _RANKS * _PAGES * _PAGE, (count,), generator=draw).tolist() for count in counts]
        seen = [server.step(tuple(context), (1,) * len(context), full_graphs) for context in contexts]
        try:
            seen.append(server.step(*_PREFILL, graph=False))
        except flash.MetadataShape as error:
            seen.append(Observation(math.inf, str(error)))
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.kept

        def one_request_missed(builder: Any, lens: Any) -> Any:
            result = real(builder, lens)
            result[0] = 0
            return result

        broken = {
            "the lengths keep no address": replaced(wrap, "kept", lambda builder, lens: lens),
            "one request's context is left out": replaced(wrap, "kept", one_request_missed),
        }
        if not wrap.says_splits(self.engine[_FLASH].FlashAttentionImpl._forward_with_dcp.__wrapped__):
            broken["the kernel chooses its splits"] = replaced(wrap, "splits", lambda metadata: 0)
        return broken
