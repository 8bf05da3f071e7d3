"""A server on sglang's FlashAttention backend that drafts and verifies trees.

Real: construction of `FlashAttentionBackend` and `FlashAttentionMultiStepBackend`, their metadata with and without a CUDA
graph, and their forward. FlashAttention 3 and the merge of two passes are emulated.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import Observation, device, observe
from attnfix.patches.lab.sglang import flash_attention, window_pool
from attnfix.patches.lab.sglang.flash_attention import BACKEND, CONFIG, Options
from attnfix.patches.lab.sglang.speculation import draft_input
from attnfix.patches.lab.sglang.window_pool import DIM, FULL, TRANSLATOR

_BATCH = "sglang.srt.model_executor.forward_batch_info"
_SPEC = "sglang.srt.speculative.eagle_utils"

LATENT, ROPE = 32, 16  # widths of the two parts of a latent
_HEADS = 2  # of queries, to one of keys
_LENS = 3, 21, 40  # cached tokens of each request
_ROOM, _CONTEXT, _WINDOW = len(_LENS), 64, 8
_STEPS, _TOPK, _DRAFT = 4, 2, 7  # of the draft model, with branches; tokens that are verified
_WIDTH = _CONTEXT + 4 + _DRAFT  # of a row of slots, as the engine makes it
PAGE = 16


class Latents(window_pool.Rows):
    """Latents of one pool, [slots, 1, LATENT + ROPE]: the rows of keys, whose first part is that of values."""

    def __init__(self, draw: Any, slots: int, behind: int = 0):
        import torch

        self.k = torch.randn(slots + behind, 1, LATENT + ROPE, generator=draw).half().to(device())[:slots]
        self.v = self.k[..., :LATENT]


class Server:
    """A server over KV of requests in pages of `size` tokens, that drafts and verifies trees of `topk` branches, or not (0).

    With `sinks`, each head has one; with `swa`, layers have a window; with `latent`, attention is over latents.
    """

    def __init__(
        self, modules: dict[str, Any], seed: int, size: int = 1, topk: int = _TOPK, sinks: bool = False, swa: bool = False,
        latent: bool = False,
    ):  # fmt: skip
        import torch

        self.modules, self.size, self.topk, self.swa, self.latent = modules, size, topk, swa, latent
        self.draw = torch.Generator().manual_seed(seed)
        self.each = -(-_WIDTH // size), 1 + -(-_STEPS // size)  # pages of a request, and of a branch of its drafts
        row, branch = self.each
        pages = _ROOM * (row + max(1, topk) * branch)
        order = (torch.randperm(pages, generator=self.draw) + 1).view(-1, 1)
        of_pages = (order * size + torch.arange(size)).to(device())
        self.req_to_token = of_pages[: _ROOM * row].reshape(_ROOM, -1)[:, :_WIDTH].int().contiguous()
        self.branches = of_pages[_ROOM * row :].reshape(_ROOM, max(1, topk), -1)
        slots = (pages + 1) * size
        rows: Any = Latents if latent else window_pool.Rows
        self.kv: Any = rows(self.draw, slots, behind=slots * (size - 1))  # where a slot that is taken for a page lies
        self.kv.page_size = size
        self.sinks = torch.randn(_HEADS, generator=self.draw).add(2).bfloat16().to(device()) if sinks else None
        ranks = {"tp_size": 1, "attn_cp_size": 1}
        args = Options(
            **ranks, attn_tp_size=1, speculative_num_draft_tokens=_DRAFT if topk else None, speculative_eagle_topk=topk,
            speculative_algorithm="EAGLE" if topk else None, speculative_num_steps=_STEPS,
        )  # fmt: skip
        arch = {"attention_arch": modules[CONFIG].AttentionArch.MLA} if latent else {}
        model = Options(
            context_len=_CONTEXT, head_dim=DIM, hf_text_config=SimpleNamespace(num_attention_heads=_HEADS),
            get_num_kv_heads=lambda ranks: 1, **arch,
        )  # fmt: skip
        more: dict[str, Any] = {"page_size": size, "sliding_window_size": _WINDOW if swa else None, **ranks}
        runner = flash_attention.runner(modules, args, model, self.kv, self.req_to_token, **more)
        self.target = modules[BACKEND].FlashAttentionBackend(runner)
        if topk:
            self.steps = modules[BACKEND].FlashAttentionMultiStepBackend(runner, topk, _STEPS)

    def verify(self, graph: bool = False) -> Observation:
        """Attention of the target model over the drafts of each request: a tree, or with one branch a chain."""
        import torch

        among = torch.eye(_DRAFT, dtype=torch.bool)
        for token in range(1, _DRAFT):
            among[token] |= among[(token - 1) // self.topk]
        masks = [torch.cat([torch.ones(_DRAFT, n, dtype=torch.bool), among], 1).flatten() for n in _LENS]
        slots = torch.cat([row[n : n + _DRAFT] for row, n in zip(self.req_to_token, _LENS)])
        batch = self._batch("TARGET_VERIFY", _DRAFT, slots, custom_mask=torch.cat(masks).to(device()))
        self._plan(self.target, batch, graph)
        seen = [
            torch.cat([self.req_to_token[b, : _LENS[b]], slots.view(_ROOM, _DRAFT)[b][among[token].to(device())]])
            for b in range(_ROOM)
            for token in range(_DRAFT)
        ]
        return self._attend(self.target.forward_extend, batch, seen)

    def draft(self, graph: bool = False) -> Iterator[Observation]:
        """Attention of the steps of the draft model over each branch. With pages, each branch has a copy of the last one."""
        import torch

        drafted = torch.stack([slots for b in range(_ROOM) for slots in self._drafted(b)])
        batch = self._batch("DECODE", self.topk, drafted.flatten())
        self._plan(self.steps, batch, graph)
        for step, backend in enumerate(self.steps.attn_backends[: _STEPS - 1]):
            seen = [
                torch.cat([self.req_to_token[row // self.topk, : _LENS[row // self.topk]], drafted[row, : step + 1]])
                for row in range(len(drafted))
            ]
            yield self._attend(backend.forward_decode, batch, seen)

    def _drafted(self, b: int) -> list[Any]:
        """Slots of what a request's branches draft; a chain goes on in the request's own pages."""
        n, last = _LENS[b], _LENS[b] % self.size
        if self.topk == 1:
            return [self.req_to_token[b, n : n + _STEPS].long()]
        kept = self.req_to_token[b, n - last : n].long()
        for branch in self.branches[b]:
            for rows in (self.kv.k, self.kv.v):
                rows[branch[:last]] = rows[kept]
        return [branch[last : last + _STEPS] for branch in self.branches[b]]

    def decode(self) -> Observation:
        """Attention of a step of a server that drafts nothing."""
        slots = self.req_to_token[range(_ROOM), [n - 1 for n in _LENS]]
        batch = self._batch("DECODE", 1, slots, spec=False)
        self._plan(self.target, batch, False)
        return self._attend(self.target.forward_decode, batch, [row[:n] for row, n in zip(self.req_to_token, _LENS)])

    def prefill(self) -> Observation:
        """Attention of the last tokens of each request, behind those that are cached."""
        import torch

        slots = torch.cat([row[n - 2 : n] for row, n in zip(self.req_to_token, _LENS)])
        batch = self._batch("EXTEND", 2, slots, spec=False)
        self._plan(self.target, batch, False)
        seen = [self.req_to_token[b, : _LENS[b] - 1 + token] for b in range(_ROOM) for token in range(2)]
        return self._attend(self.target.forward_extend, batch, seen)

    def _plan(self, backend: Any, batch: Any, graph: bool) -> None:
        if not graph:
            return backend.init_forward_metadata(batch)
        backend.init_cuda_graph_state(_ROOM, _ROOM * batch.out_tokens)
        for capture in (True, False):
            flash_attention.lay_out(backend, batch, capture)

    def _attend(self, forward: Any, batch: Any, seen: list[Any]) -> Observation:
        """`seen`: slots of the keys of each row, of which a window layer sees the last."""
        import torch

        layer = window_pool.layer(FULL, -1)
        layer.tp_q_head_num, width = _HEADS, self.kv.k.shape[-1]
        layer.head_dim, layer.v_head_dim, layer.scaling = width, self.kv.v.shape[-1], width**-0.5
        if self.swa:
            layer.sliding_window_size, seen = _WINDOW, [slots[-_WINDOW - 1 :] for slots in seen]
        q = torch.randn(len(seen), _HEADS, width, generator=self.draw).half().to(device())
        given = {} if self.sinks is None else {"sinks": self.sinks}
        rows = q
        if self.latent:
            rows, given["q_rope"] = q[..., :LATENT].contiguous(), q[..., LATENT:].contiguous()
        out = forward(rows.flatten(1), None, None, layer, batch, save_kv_cache=False, **given).view(len(seen), _HEADS, -1)
        exact = []
        for one, slots in zip(q.split(1), seen):
            k, v = (rows[slots.long()].expand(-1, _HEADS, -1) for rows in (self.kv.k, self.kv.v))
            exact.append(emulators.attention(one, k, v, width**-0.5, sinks=self.sinks)[0])
        return observe(out, torch.cat(exact))

    def _batch(self, mode: str, tokens: int, slots: Any, spec: bool = True, **told: Any) -> Any:
        import torch

        positions = torch.zeros(_ROOM * tokens, dtype=torch.int64, device=device())
        drafts = draft_input(
            self.modules.get(_SPEC), draft_token_num=tokens, num_tokens_per_req=tokens, positions=positions, **told
        )
        seq_lens, new = torch.tensor(_LENS, device=device()), torch.full((_ROOM,), tokens, device=device())
        batch = object.__new__(self.modules[_BATCH].ForwardBatch)
        batch.__dict__.update(
            forward_mode=self.modules[_BATCH].ForwardMode[mode], batch_size=_ROOM, spec_info=drafts if spec else None,
            encoder_lens=None, seq_lens=seq_lens, seq_lens_cpu=seq_lens.cpu(), seq_lens_sum=sum(_LENS), input_ids=None,
            out_cache_loc=slots.long(), out_tokens=tokens, req_pool_indices=torch.arange(_ROOM, device=device()),
            token_to_kv_pool=self.kv, kv_loc_plan=None, positions=positions, attn_cp_metadata=None,
            req_to_token_pool=SimpleNamespace(req_to_token=self.req_to_token), attn_attend_prefix_cache=None,
            spec_algorithm=SimpleNamespace(is_uno=lambda: False), extend_seq_lens=new, extend_seq_lens_cpu=[tokens] * _ROOM,
            extend_prefix_lens_cpu=[n - tokens for n in _LENS], extend_num_tokens=_ROOM * tokens,
        )  # fmt: skip
        return batch


class Trees(proof.Proof):
    """Base of the proofs of trees."""

    modules = (BACKEND, _BATCH, CONFIG, TRANSLATOR, _SPEC)
    may_lack = (TRANSLATOR, _SPEC)

    def prepare(self) -> None:
        kernels: Any = importlib.import_module("sgl_kernel.flash_attn")
        kernels.flash_attn_varlen_func, kernels.flash_attn_with_kvcache = None, flash_attention.paged
        kernels.get_scheduler_metadata = None
        backend = self.engine[BACKEND]
        backend.merge_state_v2 = emulators.merge_state_v2
        flash_attention.use(backend, flash_attention.paged)
