"""Proof of sglang.triton-swa-deterministic: prefill of requests with and without cached tokens, on full and window layers.

Real: `TritonAttnBackend`'s metadata and forward, its Triton kernels in the interpreter, and the pool that routes layers to full
and sliding-window KV.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, cumulative, device, observe, replaced
from attnfix.patches.lab.sglang import window_pool
from attnfix.patches.lab.sglang.window_pool import DIM, FULL, HEADS, SLIDING

_BACKEND = "sglang.srt.layers.attention.triton_backend"
_KERNELS = ("sglang.srt.layers.attention.triton_ops.extend_attention", "sglang.kernels.ops.attention.extend_attention")
_BATCH = "sglang.srt.model_executor.forward_batch_info"

_ROOM, _CONTEXT, _WINDOW = 4, 40, 8  # requests, tokens per request


class Proof(proof.Proof):
    modules = (_BACKEND, *_KERNELS, *window_pool.MODULES, _BATCH)
    may_lack = (*_KERNELS, *window_pool.MAY_LACK)
    kernel = "interpreted"

    def prepare(self) -> None:
        if not hasattr(self.engine[_BACKEND].TritonAttnBackend, "_forward_extend_unified"):
            raise NoSuchPath("TritonAttnBackend has no deterministic prefill")

    def scenario(self, seed: int) -> Observation:
        return combine(*(self._run(seed, SLIDING, True, ahead) for ahead in (False, True)))

    def control(self, seed: int) -> Observation:
        """Full layers, and window layers without deterministic inference."""
        return combine(self._run(seed, FULL, True), self._run(seed, SLIDING, False))

    def _run(self, seed: int, layer_id: int, deterministic: bool, ahead: bool = False) -> Observation:
        """Attention of a layer over new tokens against float64. `ahead`: the model runner has translated the slots already."""
        import torch

        draw = torch.Generator().manual_seed(seed)
        cached = [0, *torch.randint(1, 20, (_ROOM - 1,), generator=draw).tolist()]
        new = torch.randint(1, 2 * _WINDOW, (_ROOM,), generator=draw).tolist()
        pool = window_pool.Pool(self.engine, draw, cached, new, _WINDOW, _CONTEXT)
        q, k, v = (torch.randn(sum(new), HEADS, DIM, generator=draw).half().to(device()) for _ in "qkv")
        at = cumulative(new).tolist()
        batch, backend = self._batch(pool, cached, new), self._backend(pool, deterministic)
        if window_pool.TRANSLATOR in self.engine:
            backend.kv_index_translator = window_pool.translator(self.engine, batch, pool)
        if ahead and hasattr(pool.kv, "set_swa_loc"):  # 0.5.8 to 0.5.12.post1
            pool.kv.set_swa_loc(pool.mapping[batch.out_cache_loc])
        backend.init_forward_metadata(batch)
        out = backend.forward_extend(q.flatten(1), k, v, window_pool.layer(layer_id, _WINDOW), batch)

        outs = []
        for b, (prefix, tokens) in enumerate(zip(cached, new)):
            keys, values = (
                torch.cat([history[b][:prefix], x[at[b] : at[b + 1]]]) for history, x in ((pool.keys, k), (pool.values, v))
            )
            for token in range(tokens):
                seen = prefix + token + 1
                first = max(0, seen - 1 - _WINDOW) if layer_id == SLIDING else 0
                row = q[at[b] + token : at[b] + token + 1]
                outs.append(emulators.attention(row, keys[first:seen], values[first:seen], DIM**-0.5)[0])
        return observe(out.view(-1, HEADS, DIM), torch.cat(outs))

    def _batch(self, pool: window_pool.Pool, cached: list[int], new: list[int]) -> Any:
        import torch

        tensor = lambda values: torch.tensor(values, dtype=torch.int32, device=device())  # noqa: E731
        totals = [n + more for n, more in zip(cached, new)]
        batch = object.__new__(self.engine[_BATCH].ForwardBatch)
        batch.__dict__.update(
            forward_mode=self.engine[_BATCH].ForwardMode.EXTEND, batch_size=_ROOM, spec_info=None, encoder_lens=None,
            seq_lens=tensor(totals), seq_lens_cpu=torch.tensor(totals), seq_lens_sum=sum(totals),
            req_pool_indices=tensor(range(_ROOM)), extend_prefix_lens=tensor(cached), extend_prefix_lens_cpu=cached,
            extend_seq_lens=tensor(new), extend_seq_lens_cpu=new, extend_start_loc=cumulative(new)[:-1].to(device()),
            out_cache_loc=pool.out_cache_loc, token_to_kv_pool=pool.kv, kv_loc_plan=None, sampling_info=SimpleNamespace(),
        )  # fmt: skip
        return batch

    def _backend(self, pool: window_pool.Pool, deterministic: bool) -> Any:
        import torch

        backend = object.__new__(self.engine[_BACKEND].TritonAttnBackend)
        kernels = next(self.engine[name] for name in reversed(_KERNELS) if name in self.engine)
        indptr = torch.zeros(_ROOM + 1, dtype=torch.int32, device=device())
        for name in (
            "extend_attention_fwd",
            "extend_attention_fwd_unified",
            "build_unified_kv_indices",
            "align_window_kv_to_tiles",
        ):
            if hasattr(kernels, name):
                setattr(backend, name, getattr(kernels, name))
        backend.__dict__.update(
            enable_deterministic=deterministic, skip_prefill=False, sliding_window_size=_WINDOW, req_to_token=pool.req_to_token,
            token_to_kv_pool=pool.kv, token_to_kv_pool_allocator=pool.allocator, num_draft_tokens=0, speculative_num_steps=0,
            topk=0, num_head=HEADS, num_kv_head=HEADS, v_head_dim=DIM, swa_v_head_dim=None, max_context_len=_CONTEXT,
            device=device(), max_kv_splits=1, allow_bidirectional_attention_in_extend=False, kv_indptr=indptr,
            window_kv_indptr=indptr.clone(), qo_indptr=indptr.clone(), mask_indptr=indptr.long(), forward_metadata=None,
            use_sliding_window_kv_pool=True, use_mla=False, page_size=1, dllm_attention=None, dcp_size=1, dcp_rank=0,
            is_draft_runner=False, use_dense_fp8_chunked_prefill=False, use_verify_splitkv=False,
            use_verify_shared_kv=False, _translate_kv_loc=None, swa_kv_pool=pool.kv, _swa_kv_pool=pool.kv,
        )  # fmt: skip
        return backend

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.slots

        def one_token_missed(pool: Any, loc: Any) -> Any:
            found = real(pool, loc).clone()
            found[0] = loc[0]
            return found

        return {
            "the correction does nothing": replaced(wrap, "slots", lambda pool, loc: loc),
            "one token keeps its slot": replaced(wrap, "slots", one_token_missed),
            "the slots are those of other tokens": replaced(wrap, "slots", lambda pool, loc: real(pool, loc).roll(1)),
        }
