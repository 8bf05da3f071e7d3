"""Proof of vllm.dcp-fa2-split: two ranks compute steps in which contexts stand behind a new prompt.

Real: the config, the layer and the metadata builder by their constructors, `build`, the layer's `forward` with the split and
the combine over the ranks, whose Triton kernel runs in the interpreter. Emulated: FlashAttention 2, the merge, the collectives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.emulators import flash_attention as flash
from attnfix.patches.lab.proof import NoSuchPath, Observation, cumulative, fixup_sabotages, observe, replaced
from attnfix.patches.lab.vllm import dcp_ranks, kernels
from attnfix.patches.lab.vllm.construction import DENSE, Worker

_FLASH = "vllm.v1.attention.backends.flash_attn"
_RANKS, _TP, _PAGE, _PAGES, _D = 2, 4, 16, 8, 64
_HEADS = DENSE["num_attention_heads"] // _TP  # of a rank; every rank of a pair has the same KV head
#: tokens in the cache and new ones of each request, in the order of the batch
_BEHIND: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((0, 64), (2, 3)),  # the rest of a prompt, as Model Runner V2 sorts it
    ((67, 0, 90), (1, 4, 59)),  # behind a decode
    ((0, 20), (5, 1)),  # a decode behind a new prompt, as the former runner has it
    ((9, 0, 1, 33, 0), (1, 2, 3, 1, 4)),  # a rank holds nothing of one context; a new prompt is last
)
_IN_ORDER: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((64, 0), (3, 2)),
    ((20, 64, 0, 0), (1, 3, 2, 5)),
    ((20, 33), (1, 1)),
    ((0, 0), (2, 3)),
    ((64, 20), (3, 4)),
)


class Proof(proof.Proof):
    modules = (_FLASH,)
    version = 2
    around = {"On Hopper leave `--attention-config.flash_attn_version` unset": {"version": 3}}

    def __init__(self) -> None:
        kernels.stand_in()  # before the backend binds the kernels' names
        super().__init__()

    def prepare(self) -> None:
        module = self.engine[_FLASH]
        if not hasattr(module, "split_dcp_context_queries"):
            raise NoSuchPath("FlashAttention does not split a step under decode context parallelism")
        dcp_ranks.prepare(module)
        module.merge_attn_states = emulators.merge_attn_states
        module.flash_attn_varlen_func, module.get_scheduler_metadata = _flash_attention, flash.get_scheduler_metadata
        module.reshape_and_cache_flash = lambda *args, **kwargs: None
        module.current_workspace_manager = lambda: SimpleNamespace(get_simultaneous=_workspaces)

    def scenario(self, seed: int) -> Iterator[Observation]:
        for batch in _BEHIND:
            yield self._step(seed, batch, self.version)

    def control(self, seed: int) -> Iterator[Observation]:
        """Batches in order; and FlashAttention 3, which takes all of a step at once."""
        for batch in _IN_ORDER:
            yield self._step(seed, batch, version=2)
        for batch in _BEHIND:
            yield self._step(seed, batch, version=3)

    def _step(self, seed: int, batch: tuple[tuple[int, ...], tuple[int, ...]], version: int) -> Observation:
        import torch

        context, new = batch
        module = self.engine[_FLASH]
        module.get_flash_attn_version = lambda *args, **kwargs: version
        draw = torch.Generator().manual_seed(seed)
        tensor = lambda *shape: torch.randn(*shape, generator=draw).bfloat16()  # noqa: E731
        q, k, v = tensor(sum(new), _RANKS * _HEADS, _D), tensor(sum(new), 1, _D), tensor(sum(new), 1, _D)
        cached = tensor(2, len(new), max(max(context), 1), 1, _D)
        group = dcp_ranks.Group(_RANKS)
        module.get_dcp_group = lambda: group
        ranks = [_Rank(rank, context, new, cached, draw) for rank in range(_RANKS)]
        outs = group.on_all(lambda rank: ranks[rank].forward(q[:, rank * _HEADS : (rank + 1) * _HEADS].contiguous(), k, v))
        return observe(torch.cat(outs, 1), _reference(q, k, v, cached, context, new))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.with_context
        return fixup_sabotages() | {
            "nothing is counted": replaced(wrap, "with_context", lambda starts, lens: 0),
            "the last context is left out": replaced(wrap, "with_context", lambda starts, lens: real(starts, lens) - 1),
            "the kernel gets requests without keys": replaced(wrap, "with_a_key", lambda lens: lens),
        }


class _Rank:
    """One rank: its layer, its share of the cache, the metadata of a step."""

    def __init__(self, rank: int, context: tuple[int, ...], new: tuple[int, ...], cached: Any, draw: Any):
        import torch

        worker = Worker(
            DENSE, backend="flash_attn.FlashAttentionBackend", rank=rank, tp=_TP, dcp=_RANKS, page_size=_PAGE, capability=(8, 0)
        )
        cache = torch.randn(2, len(new), _PAGES * _PAGE, 1, _D, generator=draw).bfloat16()
        for b, n in enumerate(context):
            share = cached[:, b, rank:n:_RANKS]
            cache[:, b, : share.shape[1]] = share
        with worker:
            self.layer = worker.layer(0)
            self.metadata = worker.builder([self.layer]).build(0, worker.batch(context, new, pages=_PAGES))
            self.cache = worker.laid_out(cache.view(2, -1, _PAGE, 1, _D))

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        import torch

        out = torch.zeros_like(q)
        self.layer.impl.forward(self.layer, q, k, v, self.cache, self.metadata, output=out)
        return out


def _flash_attention(*, fa_version: int, cu_seqlens_q: Any, max_seqlen_q: int, seqused_k: Any = None, **launch: Any) -> Any:
    """As of version 3, but for the LSE of requests without keys in a call for more than decodes.

    Version 2 leaves that unwritten, and writes +inf where it would be if queries were padded to the longest
    (`flash_fwd_kernel.h`).
    """
    found = flash.flash_attn_varlen_func(cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, seqused_k=seqused_k, **launch)
    if fa_version != 2 or seqused_k is None or not isinstance(found, tuple):
        return found
    lse, at = found[1], cu_seqlens_q.tolist()
    for b in (seqused_k == 0).nonzero().flatten().tolist():
        rows = slice(at[b], at[b + 1])
        if max_seqlen_q == 1:  # with one KV head both places are the same
            lse[:, rows] = math.inf
            continue
        lse[:, rows] = emulators.stale(lse[:, rows].shape, lse.dtype, 2, 12)
        for head in range(len(lse)):
            padded = (b * len(lse) + head) * max_seqlen_q
            lse.view(-1)[padded : padded + at[b + 1] - at[b]] = math.inf
    return found


def _workspaces(*specs: tuple) -> list:
    """Memory of earlier steps."""
    return [emulators.stale(shape, dtype, 10, 11) for shape, dtype in specs]


def _reference(q: Any, k: Any, v: Any, cached: Any, context: tuple[int, ...], new: tuple[int, ...]) -> Any:
    import torch

    at, outs = cumulative(new).tolist(), []
    for b, n in enumerate(context):
        rows = slice(at[b], at[b + 1])
        keys, values = (torch.cat([part[b, :n], x[rows]]).expand(-1, q.shape[1], -1) for part, x in zip(cached, (k, v)))
        outs.append(emulators.attention(q[rows], keys, values, _D**-0.5, causal=True)[0])
    return torch.cat(outs)
