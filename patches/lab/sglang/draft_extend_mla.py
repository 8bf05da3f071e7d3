"""Spec v2's CUDA graphs on TRT-LLM MLA: what the proofs of bugs of verification and draft extend share.

Real: capture and replay of the metadata, the page-table kernel (interpreted), `TRTLLMMLABackend.forward_extend`. Emulated:
the TRT-LLM decode kernel and the graph itself. A step is judged by attention against float64, and by every field of the
metadata against what capture laid out.
"""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.sglang import draft_extend_graph as graphs
from attnfix.patches.lab.sglang.draft_extend_graph import CONTEXT, PAGE, ROOM, STEPS, STRIDE, Requests

BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend"
MODULES = (BACKEND, *graphs.MODULES)
MAY_LACK = graphs.MAY_LACK

HEADS, LORA, ROPE = 2, 512, 64
DIM = LORA + ROPE
_UNIFORM = ("max_seq_len_q", "sum_seq_lens_q", "cu_seqlens_q", "seq_lens_q")  # the same at every replay


def prepare(modules: dict[str, Any]) -> Any:
    """Put the stand-ins in place; the backend's module."""
    backend = modules[BACKEND]
    backend.get_parallel = lambda: SimpleNamespace(dcp_enabled=False)  # the newest releases' record of how ranks divide
    return backend


class Step(graphs.Step):
    def __init__(self, modules: dict[str, Any], mode: str, draw: Any):
        import torch

        super().__init__(modules, mode, draw)
        self.cache = torch.randn(self.pool.slots, 1, DIM, generator=draw).bfloat16()
        self.q = torch.zeros(ROOM * STRIDE, HEADS, DIM, dtype=torch.bfloat16)
        self.backend = backend_of(modules, self.pool, self.cache)

    def stage(self, requests: Requests) -> None:
        import torch

        self.q.copy_(torch.randn(self.q.shape, generator=self.draw))

    def forward(self, graph: graphs.Graph, batch: Any) -> Any:
        kernel = graph.recorded(emulators.trtllm_batch_decode_with_kv_cache_mla)
        decode = SimpleNamespace(trtllm_batch_decode_with_kv_cache_mla=kernel)
        self.modules[BACKEND].flashinfer = SimpleNamespace(decode=decode)
        q = self.q[: batch.batch_size * STRIDE].flatten(1)
        return self.backend.forward_extend(q, None, None, layer(), batch, save_kv_cache=False)

    def captured(self, size: int) -> tuple:
        metadata = self.backend.decode_cuda_graph_metadata[size]
        return metadata, deepcopy([getattr(metadata, name) for name in _UNIFORM])

    def reference(self, requests: Requests, captured: tuple) -> Any:
        """Each query token sees the cache up to itself."""
        import torch

        outs = []
        for b, (prefix, new, rows) in enumerate(zip(requests.prefix, requests.new, requests.rows)):
            latent = self.cache[self.pool.of(b, 0, prefix + new)].expand(-1, HEADS, -1)
            outs.append(emulators.attention(self.q[rows], latent, latent[..., :LORA], DIM**-0.5, causal=True)[0])
        return torch.cat(outs)

    def fields(self, requests: Requests, captured: tuple) -> tuple[list, list]:
        """What is the same at every replay, real lengths, and pages for all of them."""
        import torch

        metadata, uniform = captured
        totals = [prefix + new for prefix, new in zip(requests.prefix, requests.new)]
        pages = [self.pool.of(b, 0, n)[::PAGE] // PAGE for b, n in enumerate(totals)]
        found = [metadata.block_kv_indices[b, : len(page)] for b, page in enumerate(pages)]
        now = [getattr(metadata, name) for name in _UNIFORM]
        return [*now, metadata.seq_lens_k[: len(totals)], *found], [*uniform, torch.tensor(totals), *pages]


def backend_of(modules: dict[str, Any], pool: graphs.Pool, cache: Any) -> Any:
    import torch

    backend = object.__new__(modules[BACKEND].TRTLLMMLABackend)
    indptr = torch.zeros(ROOM + 1, dtype=torch.int32)
    backend.__dict__.update(
        num_q_heads=HEADS, num_kv_heads=1, num_local_heads=HEADS, kv_lora_rank=LORA, qk_nope_head_dim=128,
        qk_rope_head_dim=ROPE, v_head_dim=LORA, kv_cache_dim=DIM, scaling=DIM**-0.5, backend="trtllm-gen",
        data_type=torch.bfloat16, q_data_type=torch.bfloat16, page_size=PAGE, req_to_token=pool.req_to_token,
        workspace_buffer=torch.zeros(16, dtype=torch.uint8), workspace_size=16, decode_cuda_graph_metadata={},
        forward_prefill_metadata=None,
        forward_decode_metadata=None, num_draft_tokens=STRIDE, speculative_num_steps=STEPS, max_context_len=CONTEXT,
        device="cpu", skip_prefill=False, q_indptr_decode=torch.arange(ROOM + 1, dtype=torch.int32), kv_indptr=indptr,
        qo_indptr=indptr.clone(), token_to_kv_pool=SimpleNamespace(get_key_buffer=lambda layer: cache),
        is_draft_runner=True, _multi_ctas_kv_counter_buffer=None, _unified_mla=False, _v2p_page_table=None,
        _kernel_page_multiplier=1, _kv_shard_pool=None,
    )  # fmt: skip
    if graphs.TRANSLATOR in modules:
        backend.kv_index_translator = graphs.translator(modules, pool, backend.token_to_kv_pool)
    backend.init_cuda_graph_state(ROOM, ROOM * STRIDE, kv_indices_buf=torch.zeros(ROOM * CONTEXT, dtype=torch.int32))
    return backend


def layer() -> Any:
    return SimpleNamespace(
        tp_q_head_num=HEADS, tp_k_head_num=1, tp_v_head_num=1, head_dim=DIM, v_head_dim=LORA, scaling=DIM**-0.5,
        layer_id=0, k_scale_float=None, logit_cap=0.0,
    )  # fmt: skip
