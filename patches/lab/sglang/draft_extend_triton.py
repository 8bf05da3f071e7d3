"""Spec v2's draft extend on Triton, through its CUDA graphs: what the proofs of both bugs of that replay share.

Real: capture and replay of the metadata, `TritonAttnBackend.forward_extend`, and its Triton kernels, in the interpreter; the
graph alone is emulated. A step is judged by attention against float64, and by the metadata against what capture laid out.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import device
from attnfix.patches.lab.sglang import draft_extend_graph as graphs
from attnfix.patches.lab.sglang.draft_extend_graph import CONTEXT, PAGE, ROOM, STEPS, STRIDE, Requests

_BACKEND = "sglang.srt.layers.attention.triton_backend"
_KERNELS = ("sglang.srt.layers.attention.triton_ops.extend_attention", "sglang.kernels.ops.attention.extend_attention")
_HEADS, _DIM = 1, 32  # the interpreter's time goes by heads and requests


class Step(graphs.Step):
    def __init__(self, modules: dict[str, Any], mode: str, draw: Any):
        import torch

        super().__init__(modules, mode, draw)
        self.keys, self.values = (torch.randn(self.pool.slots, 1, _DIM, generator=draw).half().to(device()) for _ in "kv")
        self.q = torch.zeros(ROOM * STRIDE, _HEADS, _DIM, dtype=torch.float16, device=device())
        self.k, self.v = (self.q.new_zeros(ROOM * STRIDE, 1, _DIM) for _ in "kv")
        self.backend = _backend(modules, self.pool, self.keys, self.values)
        self.kernel = self.backend.extend_attention_fwd

    def stage(self, requests: Requests) -> None:
        import torch

        self.q.copy_(torch.randn(self.q.shape, generator=self.draw))
        for b, (prefix, new, rows) in enumerate(zip(requests.prefix, requests.new, requests.rows)):
            slots = self.pool.of(b, prefix, prefix + new)
            self.k[rows], self.v[rows] = self.keys[slots], self.values[slots]

    def forward(self, graph: graphs.Graph, batch: Any) -> Any:
        self.backend.extend_attention_fwd = graph.recorded(self.kernel)
        q, k, v = (rows[: batch.batch_size * STRIDE] for rows in (self.q.flatten(1), self.k, self.v))
        return self.backend.forward_extend(q, k, v, _layer(), batch, save_kv_cache=False)

    def captured(self, size: int) -> tuple:
        metadata = self.backend.forward_metadata
        return metadata, metadata.qo_indptr.clone(), metadata.max_extend_len

    def reference(self, requests: Requests, captured: tuple) -> Any:
        """Each query token sees the cached tokens, the step's own tokens before it, and itself."""
        import torch

        outs, cached = [], self.cached(requests, captured[0])
        for b, (prefix, new, rows) in enumerate(zip(requests.prefix, requests.new, requests.rows)):
            slots = torch.cat([self.pool.of(b, 0, cached[b]), self.pool.of(b, prefix, prefix + new)])
            k, v = (cache[slots].expand(-1, _HEADS, -1) for cache in (self.keys, self.values))
            outs.append(emulators.attention(self.q[rows], k, v, _DIM**-0.5, causal=True)[0])
        return torch.cat(outs)

    def fields(self, requests: Requests, captured: tuple) -> tuple[list, list]:
        """The layout of the queries, which is the same at every replay, and the slots of the cached tokens."""
        metadata, qo_indptr, max_extend_len = captured
        cached, at = self.cached(requests, metadata), metadata.kv_indptr.tolist()
        found = [metadata.kv_indices[at[b] : at[b] + n] for b, n in enumerate(cached)]
        slots = [self.pool.of(b, 0, n) for b, n in enumerate(cached)]
        return [metadata.qo_indptr, metadata.max_extend_len, *found], [qo_indptr, max_extend_len, *slots]

    def cached(self, requests: Requests, metadata: Any) -> list[int]:
        """Cached tokens of each request that the kernel must attend to: all but the step's own, which it is handed."""
        return list(requests.prefix)


def _backend(modules: dict[str, Any], pool: graphs.Pool, keys: Any, values: Any) -> Any:
    import torch

    backend = object.__new__(modules[_BACKEND].TritonAttnBackend)
    kernels = next(modules[name] for name in reversed(_KERNELS) if name in modules)
    indptr = torch.zeros(ROOM + 1, dtype=torch.int32, device=device())
    backend.__dict__.update(
        extend_attention_fwd=kernels.extend_attention_fwd, skip_prefill=False, sliding_window_size=None,
        req_to_token=pool.req_to_token, num_draft_tokens=STRIDE, speculative_num_steps=STEPS, topk=1, num_head=_HEADS,
        num_kv_head=1, v_head_dim=_DIM, swa_v_head_dim=None, max_context_len=CONTEXT, device=device(), max_kv_splits=1,
        allow_bidirectional_attention_in_extend=False, enable_deterministic=False, kv_indptr=indptr, window_kv_indptr=None,
        qo_indptr=indptr.clone(), mask_indptr=indptr.long(), forward_metadata=None,
        cuda_graph_custom_mask=None, use_sliding_window_kv_pool=False, use_mla=False, page_size=PAGE,
        token_to_kv_pool=SimpleNamespace(get_key_buffer=lambda layer: keys, get_value_buffer=lambda layer: values),
        dllm_attention=None, dcp_size=1, dcp_rank=0, enable_lean_attention=False, lean_total_programs=1, lean_block_m=16,
        is_draft_runner=False, target_verify_num_tokens_per_req=STRIDE, use_verify_splitkv=False, use_verify_shared_kv=False,
        is_hip_dspark_draft=False, _translate_kv_loc=None, use_dense_fp8_chunked_prefill=False,
    )  # fmt: skip
    if graphs.TRANSLATOR in modules:
        backend.kv_index_translator = graphs.translator(modules, pool, backend.token_to_kv_pool)
    backend.init_cuda_graph_state(ROOM, ROOM * STRIDE)
    return backend


def _layer() -> Any:
    return SimpleNamespace(
        tp_q_head_num=_HEADS, tp_k_head_num=1, tp_v_head_num=1, head_dim=_DIM, qk_head_dim=_DIM, v_head_dim=_DIM,
        scaling=_DIM**-0.5, layer_id=0, logit_cap=0.0, logit_capping_method="tanh", is_cross_attention=False, attn_type=None,
        sliding_window_size=-1, xai_temperature_len=-1, k_scale=None, v_scale=None,
    )  # fmt: skip


class DraftExtend(graphs.DraftExtend):
    """A proof about draft extend on Triton."""

    modules = (_BACKEND, *_KERNELS, *graphs.MODULES)
    may_lack = (*_KERNELS, *graphs.MAY_LACK)
    kernel = "interpreted"
    step = Step

    def prepare(self) -> None:
        backend = self.engine[_BACKEND]
        graphs.require_replayed(object.__new__(backend.TritonAttnBackend), object.__new__(backend.TritonMultiStepDraftBackend))
