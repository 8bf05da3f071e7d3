"""vllm.mla-context-order in sparse MLA of 0.27.1: its context loop, which masks nothing, on the engine's own layer."""

from __future__ import annotations

RUN = """
import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace

import torch
import attnfix
from attnfix.patches.lab import emulators
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import MLA, Worker
from attnfix.patches.lab.proof import cumulative

HEADS, NOPE, ROPE, VDIM, LORA, PAGE = 4, 128, 64, 128, 512, 64
MODEL = {**MLA, "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "num_attention_heads": HEADS,
         "num_key_value_heads": HEADS, "index_topk": 64, "index_n_heads": 4, "index_head_dim": 64}
worker = Worker(MODEL, backend="mla.flashmla_sparse.FlashMLASparseBackend", page_size=PAGE, capability=(10, 0))
draw = torch.Generator().manual_seed(20)
tensor = lambda *shape: torch.randn(*shape, generator=draw).bfloat16()
topk = torch.zeros(1024, 64, dtype=torch.int32)
torch.accelerator.empty_cache = lambda: None
with worker:
    import_module("vllm.v1.worker.workspace").init_workspace_manager(torch.device("cpu"))
    layer = worker.layer(0, use_sparse=True, indexer=SimpleNamespace(topk_indices_buffer=topk), topk_indices_buffer=topk)
impl, sparse = layer.impl, sys.modules["vllm.model_executor.layers.attention.sparse_mla_attention"]
impl.kv_b_proj.weight.data = tensor(HEADS * (NOPE + VDIM), LORA) * LORA**-0.5
masks = ModuleType("vllm.model_executor.layers.attention.sparse_mla_mask")
masks.dense_mask_mod = masks.offset_dense_mask_mod = None
sys.modules[masks.__name__] = masks

def flash(q, k, v, *, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal, return_softmax_lse, **_):
    out, lse = emulators.flash_attn_varlen_func(q, k, v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=0,
        max_seqlen_k=0, softmax_scale=softmax_scale, causal=causal, return_softmax_lse=True)
    empty = (cu_seqlens_k.diff() == 0).repeat_interleave(cu_seqlens_q.diff())
    out[empty], lse[:, empty] = 9.0, 9.0   # whatever a kernel leaves where there are no keys
    return out, lse
sys.modules["vllm.vllm_flash_attn"].flash_attn_varlen_func = flash

NEW, CONTEXT = (3, 5), (0, 40)                     # a shorter fresh prompt before one with context
lens, starts = torch.tensor([CONTEXT], dtype=torch.int32), cumulative(NEW)
latent = tensor(2, PAGE, LORA + ROPE)
chunked = SimpleNamespace(
    seq_tot=[40], cu_seq_lens=cumulative(CONTEXT)[None], seq_lens=lens, starts=torch.zeros(1, 2, dtype=torch.int32),
    max_seq_lens=[40], token_to_seq=[None], chunk_total_token=[40], workspace=tensor(64, LORA + ROPE),
    prefill_tokens_with_context=LEADING, has_empty_context=[True])
chunked.workspace[:40] = latent[1, :40]
sparse.ops.gather_and_maybe_dequant_cache = lambda **where: None
prefill = SimpleNamespace(chunked_context=chunked, query_start_loc=starts, block_table=None, max_query_len=5,
    topk_mask_workspace=None)
q = tensor(8, HEADS, NOPE + ROPE)
mask = torch.zeros(2, 128, 4, dtype=torch.int32)
out, lse = impl._compute_context_mha(q, latent, prefill, torch.ones(1), list(NEW), [None, None], mask)
row = next(row for row in attnfix.status() if row["fix"] == "vllm.mla-context-order")
answer([bool((out[:3] == 0).all()), bool((lse[:, :3] == -torch.inf).all()), bool((lse[:, 3:]).isfinite().all()), row["state"]])
"""


def ran(engine_fork, leading, **environment):
    return engine_fork("vllm", "0.27.1").evaluate(f"LEADING = {leading!r}\n{RUN}", **environment)


def test_requests_without_context_are_neutral_where_every_token_merges(engine_fork):
    assert ran(engine_fork, None) == [True, True, True, "effective"]
    assert ran(engine_fork, None, ATTNFIX="0")[:3] == [False, False, True]
    assert ran(engine_fork, 3)[:3] == [False, False, True]  # the final merge does not read them
