"""Proof of vllm.dcp-captured-context: two ranks decode, and verify drafts, through graphs that Model Runner V2 captures.

Real: config, layer and metadata builder by their constructors, the batch of a capture and its way to the builder, `build` for
each step, the layer's `forward` with the combine over the ranks, whose Triton kernel runs in the interpreter. Emulated:
FlashAttention and its scheduler, the merge, the collectives, the graph: a replay runs `forward` with the metadata of capture.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab import emulators
from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.emulators import flash_attention as flash
from attnfix.patches.lab.proof import Cases, Observation, combine, cumulative, observe
from attnfix.patches.lab.vllm import dcp_ranks, kernels
from attnfix.patches.lab.vllm.construction import DENSE, Worker

from .wrap import with_context, without_context

_FLASH, _CP, _GPU = "vllm.v1.attention.backends.flash_attn", "vllm.v1.worker.cp_utils", "vllm.v1.worker.gpu"
_GRAPHS, _STATE, _BATCH = f"{_GPU}.cudagraph_utils", f"{_GPU}.model_states.default", f"{_GPU}.input_batch"
_GROUP = "vllm.v1.worker.utils"
_RANKS, _TP, _D, _ROOM, _PAGES = 2, 4, 64, 4, 6  # _ROOM: requests; _PAGES: of a request, on a rank
_HEADS = DENSE["num_attention_heads"] // _TP  # of a rank; every rank of a pair has the same KV head
_SIZES = 1, 2, 4  # requests of a graph


class Case(NamedTuple):
    """steps: tokens in the cache of each request, batch by batch. former: captured as the former runner does."""

    steps: tuple[tuple[int, ...], ...]
    drafts: int = 0
    page_size: int = 16
    interleave: int = 1
    dtype: str = "bfloat16"
    capability: tuple[int, int] = (9, 0)
    graph: bool = True
    former: bool = False
    #: The place that a release needs for this case
    where: str = ""


_ALONE = f"no {_GRAPHS}:set_dcp_capture_context"  # releases that this fix corrects: in later ones such a step stays as it is
_FULL, _PADDED, _SHORT = (5, 40, 1, 12), (7, 0, 70), (1, 2, 0)  # 1: a rank holds nothing; 0: a prompt that a graph takes


def _on_gpu(real: Any, builder: Any, common: Any) -> Any:
    told = copy(common)
    told.seq_lens = real(builder, common).seq_lens_cpu_upper_bound
    return told


class Proof(Cases):
    modules = (_FLASH, _CP, _GRAPHS, _STATE, _BATCH, _GROUP)
    may_lack = modules[1:]
    needs = "FlashAttentionMetadataBuilder.build: should_skip_dcp_context_attention"
    absent = "FlashAttention leaves no attention to a context out under decode context parallelism"
    bug = (
        Case((_FULL, (64, 9), (33,), _SHORT)),
        Case((_FULL, _PADDED), page_size=32, interleave=4, dtype="float16"),
        Case((_PADDED, (12, 64)), drafts=2),
        Case((_FULL, _SHORT), capability=(8, 0)),
        Case(((5, 40), (2, 12)), drafts=3, capability=(8, 0)),
        Case((_FULL, (33,), (0, 0), _SHORT), where=_ALONE),
        Case(((33,), (0, 0), _SHORT), former=True, where=_ALONE),
        Case(((64,), (0, 0), (12, 64)), drafts=2, former=True, where=_ALONE),
    )
    spared = (
        Case((_FULL, _SHORT), former=True),
        Case((_PADDED, (12, 64)), drafts=2, former=True),
        Case((_PADDED, (33,)), graph=False),
    )
    broken = {
        "the correction does nothing": (with_context, lambda real, builder, common: common),
        "the lengths of the GPU have a context, not those of the host": (with_context, _on_gpu),
        "a step without a context keeps an earlier step's schedule": (without_context, lambda real, *args: False),
    }
    broken_where = dict.fromkeys(tuple(broken)[2:], _ALONE)

    def __init__(self) -> None:
        kernels.stand_in()  # before the backend binds the kernels' names
        super().__init__()

    def prepare(self) -> None:
        super().prepare()
        module = self.engine[_FLASH]
        dcp_ranks.prepare(module)
        module.merge_attn_states = emulators.merge_attn_states
        module.flash_attn_varlen_func, module.get_scheduler_metadata = _flash_attention, _schedule
        module.reshape_and_cache_flash = lambda *args, **kwargs: None
        module.current_workspace_manager = lambda: SimpleNamespace(get_simultaneous=_workspaces)

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        module = self.engine[_FLASH]
        module.get_flash_attn_version = lambda *args, **kwargs: 3 if case.capability == (9, 0) else 2
        group, draw = dcp_ranks.Group(_RANKS), torch.Generator().manual_seed(seed)
        module.get_dcp_group = lambda: group
        dtype, new = getattr(torch, case.dtype), 1 + case.drafts
        tensor = lambda *shape: torch.randn(*shape, generator=draw).to(dtype)  # noqa: E731
        cached = tensor(2, _ROOM, _RANKS * _PAGES * 16, 1, _D)
        ranks = [_Rank(self.engine, case, rank, cached, dtype) for rank in range(_RANKS)]
        sizes = sorted({_size(len(context)) for context in case.steps}, reverse=True)
        for size in sizes if case.graph else ():
            metadata = [rank.captured(size) for rank in ranks]
            group.on_all(lambda at, size=size, metadata=metadata: ranks[at].capture(size, metadata[at]))
        seen = []
        for context in case.steps:
            tokens = new * len(context)
            q, k, v = tensor(tokens, _RANKS * _HEADS, _D), tensor(tokens, 1, _D), tensor(tokens, 1, _D)
            size = _size(len(context)) if case.graph else len(context)
            metadata = [rank.built(size, context) for rank in ranks]
            outs = group.on_all(lambda at, q, k, v: ranks[at].run(size, q, k, v, metadata[at]), q, k, v)  # noqa: B023
            seen.append(observe(torch.cat(outs, 1), _reference(q, k, v, cached, context, new)))
        return combine(*seen)


def _size(requests: int) -> int:
    """Of the graph for so many requests."""
    return next(size for size in _SIZES if size >= requests)


class _Rank:
    """One rank: its layer, its share of the cache, the buffers that its graphs read."""

    def __init__(self, engine: dict[str, Any], case: Case, rank: int, cached: Any, dtype: Any):
        import torch

        self.engine, self.case, self.new = engine, case, 1 + case.drafts
        self.heads = slice(rank * _HEADS, (rank + 1) * _HEADS)
        self.worker = worker = Worker(
            DENSE, backend="flash_attn.FlashAttentionBackend", dtype=case.dtype, rank=rank, tp=_TP, dcp=_RANKS,
            interleave=case.interleave, page_size=case.page_size, capability=case.capability, graphs="FULL_DECODE_ONLY",
            compilation={"max_cudagraph_capture_size": _ROOM * self.new},
        )  # fmt: skip
        mine = [token for token in range(cached.shape[2]) if worker.holds(token)]
        cache = torch.zeros(2, _ROOM, _PAGES * case.page_size, 1, _D, dtype=dtype)
        cache[:, :, : len(mine)] = cached[:, :, mine]
        with worker:
            self.layer = worker.layer(0)
            self.builder = worker.builder([self.layer])
            self.cache = worker.laid_out(cache.view(2, -1, case.page_size, 1, _D))
        tokens = _ROOM * self.new
        self.buffers = engine[_BATCH].InputBuffers(_ROOM, tokens, torch.device("cpu"))
        self.tables = torch.zeros(_ROOM, _PAGES, dtype=torch.int32)
        self.q, self.out = torch.zeros(2, tokens, _HEADS, _D, dtype=dtype)
        self.k, self.v = torch.zeros(2, tokens, 1, _D, dtype=dtype)
        self.graphs: dict[int, Graph] = {}

    def captured(self, size: int) -> Any:
        """The metadata of a capture."""
        with self.worker as worker:
            if self.case.former:
                length = self.engine[_CP].get_dcp_dummy_context_len(_RANKS, self.case.interleave, True, False, True, True)
                batch = self._batch(size, (length,) * size, max_seq_len=worker.config.model_config.max_model_len)
                return self.builder.build_for_cudagraph_capture(batch)
            name = worker.name_of(self.layer)
            prepare = self.engine[_GRAPHS].prepare_inputs_to_capture
            known = {"full_cudagraph": True, "max_query_len": self.new}
            known = {name: known[name] for name in known if name in signature(prepare).parameters}
            state = prepare(size, size * self.new, self._state(), self.buffers, self._tables(), *self._groups(name), **known)
            return state[0][name]

    def _state(self) -> Any:
        """The model's, as far as it makes metadata."""
        config = self.worker.config.model_config
        state = SimpleNamespace(max_model_len=config.max_model_len, supports_mm_inputs=False, model_config=config)
        state.prepare_attn = partial(self.engine[_STATE].DefaultModelState.prepare_attn, state)
        return state

    def _tables(self) -> Any:
        import torch

        return SimpleNamespace(
            cp_size=_RANKS, cp_rank=self.worker.rank, cp_interleave=self.case.interleave, block_sizes=[self.case.page_size],
            input_block_tables=[self.tables], get_dummy_block_tables=lambda size: (self.tables[:size].zero_(),),
            get_dummy_slot_mappings=lambda tokens: torch.full((1, tokens), -1),
        )  # fmt: skip

    def _groups(self, name: str) -> Any:
        """The attention groups, and the plan of the cache."""
        group = self.engine[_GROUP].AttentionGroup(self.worker.backend, [name], self.worker.spec(self.layer), 0)
        group.metadata_builders = [self.builder]
        plan = SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=[name])], num_blocks=_ROOM * _PAGES)
        return [[group]], plan

    def capture(self, size: int, metadata: Any) -> None:
        self.graphs[size] = graph = Graph()
        self._forward(graph.recorded(self.layer.impl.forward), size * self.new, metadata)

    def built(self, size: int, context: tuple[int, ...]) -> Any:
        """The metadata of a step, padded to `size` requests."""
        with self.worker:
            return self.builder.build(0, self._batch(size, context))

    def _batch(self, size: int, context: tuple[int, ...], **more: Any) -> Any:
        count, buffers = len(context), self.buffers
        context, new = context + (0,) * (size - count), (self.new,) * count + (0,) * (size - count)
        self.tables.copy_(self.tables.new_tensor(range(self.tables.numel())).view_as(self.tables))
        buffers.seq_lens.zero_()[:size] = buffers.seq_lens.new_tensor([n + m for n, m in zip(context, new)])
        buffers.query_start_loc.fill_(sum(new))[: size + 1] = cumulative(new)
        static = {"query_start_loc": buffers.query_start_loc[: size + 1], "seq_lens": buffers.seq_lens[:size]}
        return self.worker.batch(context, new, block_table_tensor=self.tables[:size], **static, **more)

    def run(self, size: int, q: Any, k: Any, v: Any, metadata: Any) -> Any:
        for buffer, given in ((self.q, q[:, self.heads]), (self.k, k), (self.v, v)):
            buffer[: len(given)] = given
        self.out.fill_(7)
        if self.case.graph:
            self.graphs[size].replay()
        else:
            self._forward(self.layer.impl.forward, size * self.new, metadata)
        return self.out[: len(q)].clone()

    def _forward(self, forward: Any, tokens: int, metadata: Any) -> None:
        q, k, v, out = (x[:tokens] for x in (self.q, self.k, self.v, self.out))
        forward(self.layer, q, k, v, self.cache, metadata, output=out)


def _schedule(*, batch_size: int, **launch: Any) -> Any:
    """Behind the semaphore, that each request has a split."""
    schedule = flash.get_scheduler_metadata(batch_size=batch_size, **launch)
    schedule[1 : 1 + batch_size] = 1
    return schedule


def _flash_attention(*, fa_version: int, **launch: Any) -> Any:
    """Of both versions. Rows of a request without a split are left as they are. What version 2 leaves in rows without keys,
    where a request has several rows, is no part of it."""
    out, lse = flash.flash_attn_varlen_func(**launch)
    if (schedule := launch.get("scheduler_metadata")) is not None:
        starts = launch["cu_seqlens_q"].tolist()
        for b, splits in enumerate(schedule[1 : len(starts)].tolist()):
            if not splits:
                out[starts[b] : starts[b + 1]], lse[:, starts[b] : starts[b + 1]] = 11, 12
    return out, lse


def _workspaces(*specs: tuple) -> list:
    """Memory of earlier steps."""
    return [emulators.stale(shape, dtype, 10, 11) for shape, dtype in specs]


def _reference(q: Any, k: Any, v: Any, cached: Any, context: tuple[int, ...], new: int) -> Any:
    import torch

    outs = []
    for b, n in enumerate(context):
        rows = slice(b * new, (b + 1) * new)
        keys, values = (torch.cat([part[b, :n], x[rows]]).expand(-1, q.shape[1], -1) for part, x in zip(cached, (k, v)))
        outs.append(emulators.attention(q[rows], keys, values, _D**-0.5, causal=True)[0])
    return torch.cat(outs)
