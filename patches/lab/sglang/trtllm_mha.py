"""TRT-LLM MHA for proofs: `TRTLLMHAAttnBackend` without the GPU memory of its constructor, a layer of it, and a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import Observation, cumulative, observe

from .engine import accepted

BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend"
BATCH = "sglang.srt.model_executor.forward_batch_info"
POOL = "sglang.srt.mem_cache.memory_pool"
CONTEXT = "sglang.srt.model_executor.forward_context"  # from 0.5.13
MODULES, MAY_LACK = (BACKEND, BATCH, POOL, CONTEXT), (CONTEXT,)

HEADS, KV_HEADS, DIM, PAGE, PAGES = 4, 2, 32, 16, 4  # pages of each request
REQUESTS, DRAFT = 3, 4


class Translator:
    """0.5.19 and later ask it for every page table; without a unified pool it has none of its own."""

    is_translating = False

    def read_table(self, *where: Any, **of: Any) -> Any:
        return SimpleNamespace(is_translated=False)

    index_table_for_batch = read_table

    def make_capture_tables(self, *sizes: Any, **of: Any) -> None:
        return None


def backend(module: Any, req_to_token: Any, pool: Any, page: int, **fields: Any) -> Any:
    """The backend over a KV pool and its page table, int32 [requests, tokens], with `fields` of its own."""
    import torch

    made, tokens = object.__new__(module.TRTLLMHAAttnBackend), req_to_token.shape[1]
    vars(made).update(
        max_context_len=tokens, max_num_pages=-(-tokens // page), page_size=page, device=torch.device("cpu"),
        req_to_token=req_to_token, data_type=torch.bfloat16, q_data_type=torch.bfloat16, token_to_kv_pool=pool, topk=1,
        speculative_step_id=0, speculative_num_draft_tokens=None, workspace_buffer=torch.zeros(16, dtype=torch.uint8),
        is_xqa_impl=False, decode_cuda_graph_metadata={}, target_verify_metadata={}, forward_metadata=None,
        # No sliding window, no FP4 cache, no encoder, no unified pool
        use_sliding_window_kv_pool=False, _swa_kv_pool=None, _swa_full_to_swa_mapping=None, is_nvfp4_kvcache=False,
        prefill_uses_native_fp4=False, decode_uses_native_fp4=False, uses_trtllm_gen_native_fp4=False, use_fmha_v2=False,
        expand_encoder_only_verify=False, _multi_ctas_kv_counter_buffer=None, _xqa_spec_dec_mask=None,
        decode_seq_len_splits=1, _default_kv_scale=torch.ones(1),
        req_to_token_pool=SimpleNamespace(req_to_token=req_to_token), kv_read_tables=None,
        kv_index_translator=Translator(), kv_cache_quant_method=SimpleNamespace(needs_global_scale=lambda: False),
    )  # fmt: skip
    vars(made).update(fields)
    return made


def layer(module: Any, heads: int, kv_heads: int, dim: int, **fields: Any) -> Any:
    """A `RadixAttention`, as far as this backend asks it."""
    kinds = getattr(module, "AttentionType", None)
    given = {
        "layer_id": 0, "tp_q_head_num": heads, "tp_k_head_num": kv_heads, "tp_v_head_num": kv_heads, "head_dim": dim,
        "v_head_dim": dim, "qk_head_dim": dim, "scaling": dim**-0.5, "k_scale": None, "v_scale": None, "k_scale_float": None,
        "v_scale_float": None, "sliding_window_size": -1, "logit_cap": 0.0, "attn_type": kinds and kinds.DECODER,
        "is_cross_attention": False,
    }  # fmt: skip
    return SimpleNamespace(**given | fields)


class EagleVerifyInput(SimpleNamespace):
    """The engine's, as far as this backend asks it."""


class Server:
    """A backend, the engine's own KV pool of this dtype, and requests that grow step by step; `scales` of keys and values."""

    def __init__(self, modules: dict[str, Any], draw: Any, dtype: Any, scales: tuple[float, float] | None = None):
        import torch

        self.modules, self.draw, self.dtype = modules, draw, dtype
        pages = torch.randperm(REQUESTS * PAGES, generator=draw).view(REQUESTS, PAGES, 1) + 1
        self.table = (pages * PAGE + torch.arange(PAGE)).view(REQUESTS, -1).int()
        kind = modules[POOL].MHATokenToKVPool
        self.pool = kind(**accepted(kind, {
            "size": (REQUESTS * PAGES + 1) * PAGE, "page_size": PAGE, "dtype": dtype, "head_num": KV_HEADS,
            "head_dim": DIM, "layer_num": 1, "device": "cpu", "enable_memory_saver": False,
        }))  # fmt: skip
        self.backend = backend(
            modules[BACKEND], self.table, self.pool, PAGE, data_type=dtype, speculative_num_draft_tokens=DRAFT
        )
        tensors, numbers = ([torch.tensor(scale) for scale in scales], scales) if scales else ((None, None), (None, None))
        self.layer = layer(
            modules[BACKEND], HEADS, KV_HEADS, DIM, k_scale=tensors[0], v_scale=tensors[1], k_scale_float=numbers[0],
            v_scale_float=numbers[1],
        )  # fmt: skip
        self.stored = scales if scales and dtype == torch.float8_e4m3fn else (1.0, 1.0)
        self.cached = [0] * REQUESTS
        if CONTEXT in modules:  # where later releases find the pool
            modules[CONTEXT].set_forward_context(modules[CONTEXT].ForwardContext(attn_backend=self.backend))

    def step(self, mode: str, new: list[int]) -> Observation:
        """Attention of so many more tokens of each request, against float64 over what the cache holds."""
        import torch

        tokens = sum(new)
        q = torch.randn(tokens, HEADS, DIM, generator=self.draw).bfloat16()
        # As large as the scales are for: the cache holds them at FP8's full range
        k, v = ((torch.randn(tokens, KV_HEADS, DIM, generator=self.draw) * size).bfloat16() for size in (1.5, 8.0))
        batch = self._batch(mode, new)
        self.backend.init_forward_metadata(batch)
        run = self.backend.forward_decode if mode == "DECODE" else self.backend.forward_extend
        out = run(q.flatten(1), k.clone(), v.clone(), self.layer, batch)
        self.cached = [n + more for n, more in zip(self.cached, new)]
        return observe(out.view(q.shape), self._reference(q, new))

    def _reference(self, q: Any, new: list[int]) -> Any:
        """The query counts as the kernel gets it, keys and values as they are stored."""
        import torch

        at, outs = cumulative(new).tolist(), []
        for b, n in enumerate(self.cached):
            stored = (cache[self.table[b, :n].long()].double() * scale
                      for cache, scale in zip(self.pool.get_kv_buffer(0), self.stored))  # fmt: skip
            k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in stored)
            query = q[at[b] : at[b + 1]].to(self.dtype)
            outs.append(emulators.attention(query, k, v, self.layer.scaling, causal=True)[0])
        return torch.cat(outs)

    def _batch(self, mode: str, new: list[int]) -> Any:
        import torch

        batch, module = object.__new__(self.modules[BATCH].ForwardBatch), self.modules[BATCH]
        totals = [n + more for n, more in zip(self.cached, new)]
        verify = mode == "TARGET_VERIFY"
        lens = self.cached if verify else totals  # verify plans from what is cached
        slots = [row[n:total] for row, n, total in zip(self.table, self.cached, totals)]
        vars(batch).update(
            forward_mode=module.ForwardMode[mode], batch_size=len(new), input_ids=torch.zeros(sum(new), dtype=torch.int64),
            seq_lens=torch.tensor(lens), seq_lens_cpu=torch.tensor(lens), seq_lens_sum=sum(lens),
            extend_seq_lens=torch.tensor(new, dtype=torch.int32), extend_seq_lens_cpu=new,
            extend_prefix_lens=torch.tensor(self.cached, dtype=torch.int32), extend_prefix_lens_cpu=[*self.cached],
            req_pool_indices=torch.arange(len(new)), req_to_token_pool=SimpleNamespace(req_to_token=self.table),
            token_to_kv_pool=self.pool, out_cache_loc=torch.cat(slots).long(), out_cache_loc_swa=None,
            out_cache_loc_is_physical=True, encoder_lens=None, kv_loc_plan=None, _attn_output=None,
            spec_info=EagleVerifyInput(num_tokens_per_req=DRAFT, ragged_verify_layout=None) if verify else None,
        )  # fmt: skip
        return batch
