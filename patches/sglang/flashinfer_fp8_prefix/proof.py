"""Proof of sglang.flashinfer-fp8-prefix: requests whose prefix is cached in FP8 by calibrated scales.

Real: `FlashInferAttnBackend`'s metadata and forward, what plans it, the KV pool that divides by the scales, and the Triton
kernel that lists KV slots, in the interpreter. The prefix is stored by the engine itself, in a prefill of its own. Emulated:
FlashInfer's two prefill wrappers and its merge of two results.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.emulators import flashinfer
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, cumulative, device, observe, replaced
from attnfix.patches.lab.sglang.engine import accepted

_BACKEND = "sglang.srt.layers.attention.flashinfer_backend"
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_POOL = "sglang.srt.mem_cache.memory_pool"
_TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19

_ROOM, _CONTEXT = 4, 64  # requests, tokens per request
_HEADS, _KV_HEADS, _DIM = 4, 2, 32
#: Calibrated scales of keys and values
_SCALES = 0.04, 0.25


class Prefill:
    """A backend, its pool, and requests that are prefilled in one step or in several."""

    def __init__(
        self, modules: dict[str, Any], draw: Any, dtype: Any, scales: tuple[float, float] | None, use_paged: bool = False
    ):
        import torch

        self.modules, self.draw = modules, draw
        slots = torch.randperm(_ROOM * _CONTEXT, generator=draw) + 1
        self.req_to_token = slots.view(_ROOM, _CONTEXT).int().to(device())
        pool = modules[_POOL].MHATokenToKVPool
        self.pool = pool(**accepted(pool, {
            "size": _ROOM * _CONTEXT + 1, "page_size": 1, "dtype": dtype, "head_num": _KV_HEADS, "head_dim": _DIM,
            "layer_num": 1, "device": device(), "enable_memory_saver": False,
        }))  # fmt: skip
        tensors = [torch.tensor(scale) for scale in scales] if scales else (None, None)
        numbers = scales or (None, None)
        self.layer = SimpleNamespace(
            layer_id=0, tp_q_head_num=_HEADS, tp_k_head_num=_KV_HEADS, tp_v_head_num=_KV_HEADS, head_dim=_DIM, qk_head_dim=_DIM,
            v_head_dim=_DIM, scaling=_DIM**-0.5, logit_cap=0.0, is_cross_attention=False, sliding_window_size=-1,
            attn_type=None, k_scale=tensors[0], v_scale=tensors[1], k_scale_float=numbers[0], v_scale_float=numbers[1],
        )  # fmt: skip
        self.stored = scales if scales and dtype != torch.float16 else (1.0, 1.0)
        self.backend = self._backend(dtype, use_paged)
        self.cached = [0] * _ROOM

    def _backend(self, dtype: Any, use_paged: bool) -> Any:
        import torch

        module = self.modules[_BACKEND]
        indptr = lambda: torch.zeros(_ROOM + 1, dtype=torch.int32, device=device())  # noqa: E731
        shared: dict[str, Any] = {
            "kv_last_page_len": torch.ones(_ROOM, dtype=torch.int32, device=device()), "kv_indptr": [indptr()],
            "qo_indptr": [indptr()], "prefill_wrapper_ragged": flashinfer.RaggedPrefill(), "req_to_token": self.req_to_token,
            "_swa_kv_pool": None,
        }  # fmt: skip
        if _TRANSLATOR in self.modules:
            shared["kv_index_translator"] = self.modules[_TRANSLATOR].KVIndexTranslator(
                req_to_token=self.req_to_token, token_to_kv_pool_allocator=None, token_to_kv_pool=self.pool, page_size=1,
                device=device(),
            )  # fmt: skip
        backend = object.__new__(module.FlashInferAttnBackend)
        backend.__dict__.update(
            shared, num_wrappers=1, dispatch_reason=None, is_multimodal=False, enable_mis=False, enable_deterministic=False,
            multi_item_scoring_delimiter=None, use_paged=use_paged, prefill_split_tile_size=None, page_size=1,
            prefill_wrappers_paged=[flashinfer.PagedPrefill()], is_dllm_model=False, use_sliding_window_kv_pool=False,
            dq_page_table=None,
            dq_paged_kernel_lens=None, prefill_uses_dequant_workspace=False, decode_uses_dequant_workspace=False,
            is_nvfp4_kvcache=False, token_to_kv_pool=self.pool, forward_metadata=None, prefill_kv_access=None,
            kv_cache_quant_method=SimpleNamespace(needs_global_scale=lambda: False), req_to_token_pool=None,
        )  # fmt: skip
        updater = object.__new__(module.FlashInferIndicesUpdaterPrefill)
        updater.__dict__.update(
            shared, num_qo_heads=_HEADS, num_kv_heads=_KV_HEADS, head_dim=_DIM, data_type=dtype, q_data_type=torch.float16,
            sliding_window_size=None, token_to_kv_pool_allocator=None, attn_backend=backend,
        )  # fmt: skip
        updater.update = updater.update_single_wrapper
        backend.indices_updater_prefill = updater
        return backend

    def step(self, new: list[int]) -> Observation:
        """Prefill so many more tokens of each request: attention over them and what the cache holds, against float64."""
        import torch

        batch, tokens = self._batch(new), sum(new)
        q = torch.randn(tokens, _HEADS, _DIM, generator=self.draw).half().to(device())
        # As large as the scales are for: the cache holds them at FP8's full range
        k, v = ((torch.randn(tokens, _KV_HEADS, _DIM, generator=self.draw) * size).half().to(device()) for size in (1.5, 8.0))
        self.backend.init_forward_metadata(batch)
        out = self.backend.forward_extend(q.flatten(1), k.clone(), v.clone(), self.layer, batch)
        reference = self._reference(q, k, v, new)
        self.cached = [n + more for n, more in zip(self.cached, new)]
        return observe(out.view(q.shape), reference)

    def _reference(self, q: Any, k: Any, v: Any, new: list[int]) -> Any:
        """What is cached counts as it is stored; so do the new tokens where the paged kernel reads all of them."""
        import torch

        at, outs, group = cumulative(new).tolist(), [], _HEADS // _KV_HEADS
        for b, (cached, more) in enumerate(zip(self.cached, new)):
            rows, read = slice(at[b], at[b + 1]), cached + more * self.backend.use_paged
            slots, rest = self.req_to_token[b, :read].long(), slice(at[b] + read - cached, at[b + 1])
            stored = (self.pool.get_kv_buffer(0)[part][slots].double() * self.stored[part] for part in (0, 1))
            keys, values = (
                torch.cat([former, now[rest].double()]).repeat_interleave(group, 1) for former, now in zip(stored, (k, v))
            )
            outs.append(emulators.attention(q[rows], keys, values, self.layer.scaling, causal=True)[0])
        return torch.cat(outs)

    def _batch(self, new: list[int]) -> Any:
        import torch

        tensor = lambda values: torch.tensor(values, dtype=torch.int32, device=device())  # noqa: E731
        totals = [n + more for n, more in zip(self.cached, new)]
        slots = [self.req_to_token[b, n:total] for b, (n, total) in enumerate(zip(self.cached, totals))]
        batch = object.__new__(self.modules[_BATCH].ForwardBatch)
        batch.__dict__.update(
            forward_mode=self.modules[_BATCH].ForwardMode.EXTEND, batch_size=_ROOM, spec_info=None, encoder_lens=None,
            seq_lens=tensor(totals), seq_lens_cpu=torch.tensor(totals), seq_lens_sum=sum(totals), input_ids=None,
            req_pool_indices=tensor(range(_ROOM)), extend_prefix_lens=tensor(self.cached), extend_seq_lens=tensor(new),
            extend_prefix_lens_cpu=list(self.cached), extend_seq_lens_cpu=new, out_cache_loc=torch.cat(slots).long(),
            token_to_kv_pool=self.pool, cross_attention_custom_mask=None, kv_loc_plan=None, extend_no_prefix=False,
        )  # fmt: skip
        return batch


class Proof(proof.Proof):
    modules = (_BACKEND, _BATCH, _POOL, _TRANSLATOR)
    may_lack = (_TRANSLATOR,)
    use_paged = False
    around = {"From 0.5.11 set `SGLANG_FLASHINFER_USE_PAGED=1`": {"use_paged": True}}

    def prepare(self) -> None:
        if not hasattr(self.engine[_BACKEND], "FlashInferIndicesUpdaterPrefill"):
            raise NoSuchPath("FlashInfer's backend plans otherwise")
        if self.use_paged and "use_paged" not in code_of(self.engine[_BACKEND].FlashInferAttnBackend.__init__).co_names:
            raise NoSuchPath("no server is told to use the paged kernel")
        # From 0.5.14 the engine's own choice between FlashInfer's merge and Triton's, where FlashInfer is installed
        self.engine[_BACKEND].merge_state = self.engine[_BACKEND]._safe_merge_state = flashinfer.merge_state

    def scenario(self, seed: int) -> Observation:
        """The second and the third step of requests, some with nothing cached, keys and values in FP8."""
        import torch

        return self._later(seed, torch.float8_e4m3fn, _SCALES)

    def control(self, seed: int) -> Observation:
        """The first step in FP8; FP8 without scales and with 1; and a cache of 16 bits, whose checkpoint brings scales."""
        import torch

        fp8, half = torch.float8_e4m3fn, torch.float16
        first = self._prefill(seed, fp8, _SCALES).step(self._lens(seed)[0])
        rest = ((fp8, None), (fp8, (1.0, 1.0)), (half, _SCALES))
        return combine(first, *(self._later(seed, dtype, scales) for dtype, scales in rest))

    def _prefill(self, seed: int, dtype: Any, scales: Any) -> Prefill:
        import torch

        return Prefill(self.engine, torch.Generator().manual_seed(seed), dtype, scales, self.use_paged)

    def _lens(self, seed: int) -> list[list[int]]:
        import torch

        draw = torch.Generator().manual_seed(seed + 1)
        first, second, third = torch.randint(1, 20, (3, _ROOM), generator=draw).tolist()
        return [first, second, third]

    def _later(self, seed: int, dtype: Any, scales: Any) -> Observation:
        prefill = self._prefill(seed, dtype, scales)
        first, *later = self._lens(seed)
        prefill.step(first)
        return combine(*map(prefill.step, later))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "the correction does nothing": replaced(wrap, "given", lambda k_scale, v_scale: {}),
            "values are not scaled": replaced(wrap, "given", lambda k_scale, v_scale: {"k_scale": k_scale}),
            "keys are not scaled": replaced(wrap, "given", lambda k_scale, v_scale: {"v_scale": v_scale}),
            "the scales are exchanged": replaced(wrap, "given", lambda k, v: {"k_scale": v, "v_scale": k}),
        }
