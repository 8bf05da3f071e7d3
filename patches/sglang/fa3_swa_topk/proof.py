"""Proof of sglang.fa3-swa-topk: the target model verifies trees of draft tokens, with and without a CUDA graph.

Real: `FlashAttentionBackend`'s metadata, its Triton kernel that lists the slots of each draft token in the interpreter, its
forward, and the pool that routes layers to full and sliding-window KV. FlashAttention 3 is emulated.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, device, observe, replaced
from attnfix.patches.lab.sglang import flash_attention, window_pool
from attnfix.patches.lab.sglang.flash_attention import BACKEND
from attnfix.patches.lab.sglang.window_pool import DIM, FULL, HEADS, SLIDING

_BATCH = "sglang.srt.model_executor.forward_batch_info"

_ROOM, _CONTEXT, _WINDOW = 3, 48, 8  # requests, tokens per request
_DRAFT, _TOPK = 5, 2  # tokens of a request's tree, branches of one of them


def _tree(draw: Any) -> Any:
    """Which draft tokens each one sees: itself and the way to the root. Bool [_DRAFT, _DRAFT]; two children each."""
    import torch

    seen = torch.eye(_DRAFT, dtype=torch.bool)
    for token in range(1, _DRAFT):
        seen[token] |= seen[(token - 1) // _TOPK]
    return seen


class Proof(proof.Proof):
    modules = (BACKEND, *window_pool.MODULES, _BATCH)
    may_lack = window_pool.MAY_LACK

    def prepare(self) -> None:
        if "use_sliding_window_kv_pool" not in code_of(self.engine[BACKEND].FlashAttentionBackend.__init__).co_names:
            raise NoSuchPath("FlashAttentionBackend knows no sliding-window KV pool")
        flash_attention.use(self.engine[BACKEND], flash_attention.paged)

    def scenario(self, seed: int) -> Observation:
        return combine(*(self._verify(seed, SLIDING, _TOPK, graph) for graph in (False, True)))

    def control(self, seed: int) -> Observation:
        """Trees without branches; and trees of a model whose window layers share the full pool."""
        return combine(*(self._verify(seed, *kind, graph) for kind in ((SLIDING, 1), (FULL, _TOPK)) for graph in (False, True)))

    def _verify(self, seed: int, where: int, topk: int, graph: bool) -> Observation:
        """Attention of a window layer, whose KV is in the pool of layer `where`, over the trees of a batch; against float64."""
        import torch

        draw = torch.Generator().manual_seed(seed)
        cached = torch.randint(2, 30, (_ROOM,), generator=draw).tolist()
        pool = window_pool.Pool(self.engine, draw, cached, [_DRAFT] * _ROOM, _WINDOW, _CONTEXT)
        q, k, v = (torch.randn(_ROOM * _DRAFT, HEADS, DIM, generator=draw).half().to(device()) for _ in "qkv")
        seen = [_tree(draw) if topk > 1 else torch.ones(_DRAFT, _DRAFT, dtype=torch.bool).tril() for _ in cached]
        backend = flash_attention.backend(
            self.engine, pool, flash_attention.paged, topk=topk, speculative_num_steps=2, speculative_num_draft_tokens=_DRAFT,
            has_swa=True, use_sliding_window_kv_pool=where == SLIDING, sliding_window_size=_WINDOW, max_context_len=_CONTEXT,
            max_num_pages=_CONTEXT,
        )  # fmt: skip
        batch = self._batch(pool, cached, seen)
        if window_pool.TRANSLATOR in self.engine:
            backend.kv_index_translator = window_pool.translator(self.engine, batch, pool)
        if graph:
            backend.init_cuda_graph_state(_ROOM, _ROOM * _DRAFT)
            for capture in (True, False):
                flash_attention.lay_out(backend, batch, capture)
        else:
            backend.init_forward_metadata(batch)
        layer = window_pool.layer(where, _WINDOW)
        layer.sliding_window_size = _WINDOW
        out = backend.forward_extend(q.flatten(1), k.clone(), v.clone(), layer, batch)

        outs = []
        for b in range(_ROOM):
            rows = slice(b * _DRAFT, (b + 1) * _DRAFT)
            for token in range(_DRAFT):
                ancestors = seen[b][token].to(device())
                keys, values = (torch.cat([old[b], new[rows][ancestors]]) for old, new in ((pool.keys, k), (pool.values, v)))
                reached = slice(-_WINDOW - 1, None)
                outs.append(emulators.attention(q[rows][token : token + 1], keys[reached], values[reached], DIM**-0.5)[0])
        return observe(out.view(-1, HEADS, DIM), torch.cat(outs))

    def _batch(self, pool: window_pool.Pool, cached: list[int], seen: list[Any]) -> Any:
        import torch

        lens = torch.tensor(cached, dtype=torch.int32)
        masks = [torch.cat([torch.ones(_DRAFT, n, dtype=torch.bool), tree], 1).flatten() for n, tree in zip(cached, seen)]
        spec = SimpleNamespace(
            custom_mask=torch.cat(masks).to(device()), draft_token_num=_DRAFT, num_tokens_per_req=_DRAFT,
            positions=torch.zeros(_ROOM * _DRAFT, dtype=torch.int64, device=device()), ragged_verify_layout=None,
        )  # fmt: skip
        batch = object.__new__(self.engine[_BATCH].ForwardBatch)
        batch.__dict__.update(
            forward_mode=self.engine[_BATCH].ForwardMode.TARGET_VERIFY, batch_size=_ROOM, spec_info=spec, encoder_lens=None,
            seq_lens=lens.to(device()), seq_lens_cpu=lens.clone(), seq_lens_sum=sum(cached), kv_loc_plan=None,
            req_pool_indices=torch.arange(_ROOM, device=device()), out_cache_loc=pool.out_cache_loc, token_to_kv_pool=pool.kv,
            req_to_token_pool=SimpleNamespace(req_to_token=pool.req_to_token), attn_cp_metadata=None, out_tokens=_DRAFT,
            attn_attend_prefix_cache=None, positions=spec.positions, spec_algorithm=SimpleNamespace(is_uno=lambda: False),
        )  # fmt: skip
        return batch

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.in_own_pool

        def prefix_alone(pool: Any, metadata: Any) -> Any:
            return real(pool, metadata) if metadata.max_seq_len_q > 1 else metadata

        def draft_alone(pool: Any, metadata: Any) -> Any:
            return real(pool, metadata) if metadata.max_seq_len_q == 1 else metadata

        return {
            "the correction does nothing": replaced(wrap, "in_own_pool", lambda pool, metadata: metadata),
            "draft tokens keep their slots": replaced(wrap, "in_own_pool", prefix_alone),
            "cached tokens keep their slots": replaced(wrap, "in_own_pool", draft_alone),
        }
