"""Proof of sglang.stale-prefill-fallback: verifications behind a prefill that fell back to FlashInfer's MLA path.

Real: metadata and forward of that prefill and of the verification, eager and through a CUDA graph that is captured behind it,
in `TRTLLMMLABackend` and the backend of FlashInfer that it inherits from; the kernels of indices, interpreted. Emulated: the
attention kernels, and the graph (`patches/lab/sglang/draft_extend_mla.py`). Each prefill has as many tokens as the
verification behind it, so that its plan fits in shape and no row is left undefined.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, observe, replaced
from attnfix.patches.lab.sglang import draft_extend_graph as graphs
from attnfix.patches.lab.sglang import draft_extend_mla as mla
from attnfix.patches.lab.sglang.draft_extend_graph import ROOM, STRIDE, Requests

_FLASHINFER = "sglang.srt.layers.attention.flashinfer_mla_backend"


class PagedMla:
    """FlashInfer's `BatchMLAPagedAttentionWrapper`, page size 1: attends as planned last, whatever the caller's batch is.

    Rows that the plan does not speak of are undefined. A graph keeps the launch, and reads the plan at replay.
    """

    graph: graphs.Graph | None = None

    def plan(self, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_len_arr: Any, heads: int, lora: int, rope: int,
             page_size: int, causal: bool, sm_scale: float, *dtypes: Any) -> None:  # fmt: skip
        if page_size != 1 or not causal:
            raise NotImplementedError("pages of several tokens, or attention that is not causal")
        self._plan = qo_indptr.tolist(), kv_indptr.tolist(), kv_indices.clone(), sm_scale

    def run(self, q: Any, q_rope: Any, ckv: Any, kpe: Any, *, out: Any) -> Any:
        return (self.graph.recorded(self._attend) if self.graph else self._attend)(q, q_rope, ckv, kpe, out)

    def _attend(self, q: Any, q_rope: Any, ckv: Any, kpe: Any, out: Any) -> Any:
        import torch

        q_at, kv_at, slots, scale = self._plan
        if q_at[-1] > len(q):
            raise RuntimeError("an illegal memory access: the plan has more rows than the query")
        out.copy_(emulators.stale(out.shape, out.dtype, 1, 20))
        for b in range(len(q_at) - 1):
            rows, where = slice(q_at[b], q_at[b + 1]), slots[kv_at[b] : kv_at[b + 1]].long()
            query, keys = torch.cat([q[rows], q_rope[rows]], -1), torch.cat([ckv[where], kpe[where]], -1)
            keys = keys.expand(-1, query.shape[1], -1)
            out[rows] = emulators.attention(query, keys, keys[..., : ckv.shape[-1]], scale, causal=True)[0].to(out.dtype)
        return out


class Step(mla.Step):
    """Verification of a backend whose prefills with cached tokens fall back, or do not."""

    def __init__(self, modules: dict[str, Any], draw: Any, fallback: bool):
        super().__init__(modules, "TARGET_VERIFY", draw)
        self.wrapper, backend = PagedMla(), self.backend
        updater = object.__new__(modules[_FLASHINFER].FlashInferMLAIndicesUpdaterPrefill)
        vars(updater).update(
            num_local_heads=mla.HEADS, kv_lora_rank=mla.LORA, qk_nope_head_dim=128, qk_rope_head_dim=mla.ROPE,
            v_head_dim=mla.LORA, scaling=mla.DIM**-0.5, data_type=self.cache.dtype, q_data_type=self.cache.dtype,
            attn_backend=backend, kv_indptr=backend.kv_indptr, qo_indptr=backend.qo_indptr, prefill_wrapper_ragged=None,
            req_to_token=self.pool.req_to_token, _translate_kv_loc_dense=None,
        )  # fmt: skip
        vars(backend).update(
            disable_chunked_prefix_cache=fallback, prefill_wrapper_paged=self.wrapper, indices_updater_prefill=updater,
            forward_metadata=None, padded_q_buffer=None,
        )  # fmt: skip

    def forward(self, graph: graphs.Graph, batch: Any) -> Any:
        self.wrapper.graph, batch.out_cache_loc, batch.attn_attend_prefix_cache = graph, None, None
        batch.token_to_kv_pool = self.backend.token_to_kv_pool
        out = super().forward(graph, batch)
        self.wrapper.graph = None
        return out

    def __call__(self, requests: Requests) -> tuple[Observation, Observation]:
        """A verification behind a prefill: through the graph of its size, which is captured now if there is none."""
        self._lay_out_prefill(graphs.uneven(self.draw, requests.size))
        return super().__call__(requests)

    def prefill(self, count: int) -> Observation:
        """The forward of such a prefill itself."""
        requests = graphs.uneven(self.draw, count)
        self.stage(requests)
        out = self.forward(graphs.Graph(), self._lay_out_prefill(requests))
        return observe(out.view(-1, mla.HEADS, mla.LORA), self.reference(requests, ()))

    def eager(self, requests: Requests) -> Observation:
        """A verification without a graph."""
        count = len(requests.prefix)
        self._lay_out_prefill(graphs.uneven(self.draw, count))
        self.buffers.fill(requests)
        self.stage(requests)
        batch = self.buffers.batch(count, requests)
        self.backend.init_forward_metadata(batch)
        out = self.forward(graphs.Graph(), batch)
        return observe(out.view(-1, mla.HEADS, mla.LORA), self.reference(requests, ()))

    def _lay_out_prefill(self, requests: Requests) -> Any:
        """Metadata of a prefill of STRIDE tokens behind what is cached, of each request."""
        import torch

        count, prefix, new = len(requests.prefix), list(requests.prefix), [STRIDE] * len(requests.prefix)
        totals = [cached + STRIDE for cached in prefix]
        batch = object.__new__(self.modules[graphs.BATCH].ForwardBatch)
        vars(batch).update(
            forward_mode=self.modules[graphs.BATCH].ForwardMode.EXTEND, batch_size=count, spec_info=None,
            attn_dcp_metadata=None, kv_loc_plan=None, seq_lens_sum=sum(totals),
            seq_lens=torch.tensor(totals), seq_lens_cpu=torch.tensor(totals),
            extend_prefix_lens=torch.tensor(prefix), extend_prefix_lens_cpu=prefix, extend_seq_lens=torch.tensor(new),
            extend_seq_lens_cpu=new, req_pool_indices=self.pool.rows[:count],
        )  # fmt: skip
        self.backend.init_forward_metadata(batch)
        return batch


class Proof(proof.Proof):
    modules = (*mla.MODULES, _FLASHINFER)
    may_lack = mla.MAY_LACK

    def prepare(self) -> None:
        metadata = getattr(mla.prepare(self.engine), "TRTLLMMLAPrefillMetadata", None)
        if "fallback_to_flashinfer_impl" not in getattr(metadata, "__dataclass_fields__", ()):
            raise NoSuchPath("no prefill of TRT-LLM MLA falls back to FlashInfer's path")
        kernel = SimpleNamespace(flashinfer_mla_disable_ragged=False)
        arguments = SimpleNamespace(kernel=kernel, **vars(kernel))
        for name in ("get_global_server_args", "get_server_args", "get_exec"):  # one of them, by release
            if hasattr(self.engine[_FLASHINFER], name):
                setattr(self.engine[_FLASHINFER], name, lambda: arguments)

    def scenario(self, seed: int) -> Observation:
        """A graph captured behind the prefill, and an eager verification behind another, of one to eight requests."""
        return self._run(seed, fallback=True)

    def control(self, seed: int) -> Observation:
        """The same behind prefills that did not fall back, and the prefills that did, each by itself."""
        import torch

        draw = torch.Generator().manual_seed(seed)
        return combine(
            self._run(seed, fallback=False), *(Step(self.engine, draw, True).prefill(count) for count in range(1, ROOM + 1))
        )

    def _run(self, seed: int, *, fallback: bool) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        step, seen = Step(self.engine, draw, fallback), []
        for count in range(1, ROOM + 1):
            requests = graphs.uneven(draw, count)
            seen += [*step(requests), step.eager(requests)]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.speculative
        several = lambda forward_batch: real(forward_batch) and forward_batch.batch_size > 1  # noqa: E731
        return {
            "the correction does nothing": replaced(wrap, "speculative", lambda forward_batch: False),
            "batches of one are left out": replaced(wrap, "speculative", several),
            "verifications are left out": replaced(wrap, "SPECULATIVE", wrap.SPECULATIVE - {"TARGET_VERIFY"}),
        }
