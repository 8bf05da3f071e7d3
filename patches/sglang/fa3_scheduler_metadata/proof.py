"""Proof of sglang.fa3-scheduler-metadata: decode of a rank under DP attention, and in a group of context parallelism with
--enable-prefill-cp and with --attn-cp-size alone.

Real: construction of `FlashAttentionBackend`, its metadata and its forward. FlashAttention 3 is emulated with what its host
code decides: into how many parts the KV of a request may be split, for how many it allocates partial results, and that the
last kernel reads as many as the schedule says.
"""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, observe, replaced
from attnfix.patches.lab.sglang import flash_attention
from attnfix.patches.lab.sglang.flash_attention import BACKEND, CONFIG, TRANSLATOR, Options

_BATCH = "sglang.srt.model_executor.forward_batch_info"

_HEADS, _KV_HEADS, _DIM, _RANKS = 16, 8, 16, 8  # heads of the model; ranks of its tensor parallelism
_SMS, _BLOCK = 132, 128  # of an H100; KV tokens per block


def schedule(*, batch_size, max_seqlen_k, num_heads_k, cache_seqlens, num_splits, **launch):
    """FlashAttention 3's `get_scheduler_metadata`: the number of parts of each request's KV, int32 [batch]."""
    import torch

    most = parts(num_heads_k, max_seqlen_k) if num_splits == 0 else num_splits
    return torch.tensor([min(most, -(-n // _BLOCK)) for n in cache_seqlens.tolist()], dtype=torch.int32)


def parts(kv_heads, tokens):
    """The most parts into which a launch may split KV (`num_splits_heuristic` of hopper/heuristics.h)."""
    blocks = -(-tokens // _BLOCK)
    if kv_heads >= 0.8 * _SMS or blocks <= 4:
        return 1
    waves = [kv_heads * n / _SMS for n in range(1, min(128, _SMS, blocks) + 1)]
    busy = [wave / math.ceil(wave) for wave in waves]
    return next(n for n, one in enumerate(busy, 1) if one >= 0.85 * max(busy))


def decode(q, k_cache, v_cache, *, cache_seqlens, page_table, num_splits, scheduler_metadata=None, **launch):
    """`flash_attn_with_kvcache`. Partial results are allocated for as many parts as this launch's own heads give; of a request
    with more parts in the schedule, those behind them are read from memory of others, here NaN."""
    out = flash_attention.paged(q, k_cache, v_cache, cache_seqlens=cache_seqlens, page_table=page_table, **launch)
    if scheduler_metadata is not None:
        allocated = parts(k_cache.shape[2], page_table.shape[1] * k_cache.shape[1]) if num_splits == 0 else num_splits
        for b, scheduled in enumerate(scheduler_metadata.tolist()):
            if scheduled > allocated:
                out[b] = math.nan
    return out


class Proof(proof.Proof):
    modules = (BACKEND, _BATCH, CONFIG, TRANSLATOR)
    may_lack = (TRANSLATOR,)

    def prepare(self) -> None:
        if not hasattr(self.engine[BACKEND].FlashAttentionBackend, "_compute_scheduler_metadata"):
            raise NoSuchPath("FlashAttentionBackend makes no schedule ahead")
        kernels: Any = importlib.import_module("sgl_kernel.flash_attn")
        kernels.flash_attn_varlen_func, kernels.flash_attn_with_kvcache = None, decode
        kernels.get_scheduler_metadata = schedule
        flash_attention.use(self.engine[BACKEND], decode)

    def scenario(self, seed: int) -> Observation:
        return combine(
            self._decode(seed, dp_size=_RANKS),
            self._decode(seed, cp_size=_RANKS),
            self._decode(seed, cp_size=_RANKS, prefill_cp=False),
        )

    def control(self, seed: int) -> Observation:
        """Tensor parallelism alone."""
        return self._decode(seed)

    def _decode(self, seed: int, dp_size: int = 1, cp_size: int = 1, prefill_cp: bool = True) -> Observation:
        """Attention of one token of each request against float64, on one rank."""
        import torch

        draw = torch.Generator().manual_seed(seed)
        lens = [int(torch.randint(3700, 4096, (), generator=draw)), 300, 40]
        alone = _RANKS // dp_size // cp_size  # ranks that share the heads
        heads, kv_heads = _HEADS // alone, _KV_HEADS // alone
        table = torch.arange(sum(lens)).split(lens)
        req_to_token = torch.zeros(len(lens), max(lens), dtype=torch.int32)
        for b, slots in enumerate(table):
            req_to_token[b, : lens[b]] = slots
        keys, values = (torch.randn(sum(lens), kv_heads, _DIM, generator=draw).half() for _ in "kv")
        q = torch.randn(len(lens), heads, _DIM, generator=draw).half()
        backend = self._backend(dp_size, cp_size, prefill_cp and cp_size > 1, req_to_token, keys, values)
        batch = self._batch(lens, backend, keys, values)
        backend.init_forward_metadata(batch)
        layer = SimpleNamespace(
            tp_q_head_num=heads, tp_k_head_num=kv_heads, tp_v_head_num=kv_heads, head_dim=_DIM, qk_head_dim=_DIM,
            v_head_dim=_DIM, scaling=_DIM**-0.5, layer_id=0, logit_cap=0.0, is_cross_attention=False, attn_type=None,
            sliding_window_size=-1, k_scale=None, v_scale=None,
        )  # fmt: skip
        out = backend.forward_decode(q.flatten(1), None, None, layer, batch, save_kv_cache=False)
        outs = []
        for b, slots in enumerate(table):
            k, v = (x[slots].repeat_interleave(heads // kv_heads, 1) for x in (keys, values))
            outs.append(emulators.attention(q[b : b + 1], k, v, layer.scaling)[0])
        return observe(out.view(-1, heads, _DIM), torch.cat(outs))

    def _backend(self, dp_size: int, cp_size: int, prefill_cp: bool, req_to_token: Any, keys: Any, values: Any) -> Any:
        """The engine's own construction of a backend, over a model runner of this deployment."""
        args = Options(
            tp_size=_RANKS, dp_size=dp_size, attn_cp_size=cp_size, enable_dp_attention=dp_size > 1, attn_dp_enabled=dp_size > 1,
            enable_prefill_cp=prefill_cp, enable_prefill_context_parallel=prefill_cp,
            attn_tp_size=_RANKS // dp_size // cp_size, speculative_num_draft_tokens=None, speculative_algorithm=None,
        )  # fmt: skip
        model = Options(
            context_len=req_to_token.shape[1], head_dim=_DIM, hf_text_config=SimpleNamespace(num_attention_heads=_HEADS),
            get_num_kv_heads=lambda ranks: max(1, _KV_HEADS // ranks),
        )  # fmt: skip
        kv = SimpleNamespace(get_kv_buffer=lambda layer_id: (keys, values), page_size=1)
        ranks = {"tp_size": _RANKS, "attn_cp_size": cp_size}
        runner = flash_attention.runner(self.engine, args, model, kv, req_to_token, **ranks)
        return self.engine[BACKEND].FlashAttentionBackend(runner)

    def _batch(self, lens: list[int], backend: Any, keys: Any, values: Any) -> Any:
        import torch

        batch = object.__new__(self.engine[_BATCH].ForwardBatch)
        batch.__dict__.update(
            forward_mode=self.engine[_BATCH].ForwardMode.DECODE, batch_size=len(lens), spec_info=None, encoder_lens=None,
            seq_lens=torch.tensor(lens), seq_lens_cpu=torch.tensor(lens), seq_lens_sum=sum(lens), out_cache_loc=None,
            req_pool_indices=torch.arange(len(lens)), req_to_token_pool=SimpleNamespace(req_to_token=backend.req_to_token),
            token_to_kv_pool=SimpleNamespace(get_kv_buffer=lambda layer_id: (keys, values)), kv_loc_plan=None,
            attn_cp_metadata=None,
        )  # fmt: skip
        return batch

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        ways = {
            "the correction does nothing": lambda args: False,
            "context parallelism is forgotten": lambda args: args.enable_dp_attention,
            "--attn-cp-size alone is forgotten": lambda args: args.enable_dp_attention or args.enable_prefill_cp,
        }
        return {name: replaced(wrap, "heads_are_shared_otherwise", way) for name, way in ways.items()}
