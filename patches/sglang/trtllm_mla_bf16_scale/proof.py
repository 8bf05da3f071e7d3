"""Proof of sglang.trtllm-mla-bf16-scale: decode and verification of a checkpoint with scales, whose cache is BF16.

Real: the metadata, of decode also that of a CUDA graph, the page-table kernel (interpreted), `TRTLLMMLABackend`'s forward.
Emulated: the TRT-LLM decode kernel and the graph (see `draft_extend_mla.py`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import Observation, code_of, combine, observe, replaced
from attnfix.patches.lab.sglang import draft_extend_graph as graphs
from attnfix.patches.lab.sglang import draft_extend_mla as mla
from attnfix.patches.lab.sglang.draft_extend_graph import ROOM, STRIDE, Requests

_SCALE = 0.06


class Step(mla.Step):
    """Decode of one token of each request, or verification of STRIDE, by layers with this scale of keys."""

    def __init__(self, modules: dict[str, Any], mode: str, draw: Any, scale: float | None):
        super().__init__(modules, mode, draw)
        self.verify = mode == "TARGET_VERIFY"
        self.layer = mla.layer()
        self.layer.k_scale_float = scale

    def eager(self, requests: Requests) -> Observation:
        count = len(requests.prefix)
        self.buffers.fill(requests)
        self.stage(requests)
        batch = self.buffers.batch(count, requests)
        self.backend.init_forward_metadata(batch)
        return self._compared(self.forward(graphs.Graph(), batch), requests)

    def replayed(self, requests: Requests) -> Observation:
        graph, out, _captured = self._captured(requests.size)
        self.buffers.fill(requests)
        self.stage(requests)
        graphs.lay_out(self.backend, self.buffers.batch(requests.size, requests), self.buffers, capture=False)
        graph.replay()
        return self._compared(out, requests)

    def forward(self, graph: graphs.Graph, batch: Any) -> Any:
        kernel = graph.recorded(emulators.trtllm_batch_decode_with_kv_cache_mla)
        decode = SimpleNamespace(trtllm_batch_decode_with_kv_cache_mla=kernel)
        self.modules[mla.BACKEND].flashinfer = SimpleNamespace(decode=decode)
        batch.token_to_kv_pool = self.backend.token_to_kv_pool
        run = self.backend.forward_extend if self.verify else self.backend.forward_decode
        q = self.q[: batch.batch_size * (STRIDE if self.verify else 1)].flatten(1)
        k, v = q.new_zeros(len(q), mla.DIM), q.new_zeros(len(q), mla.LORA)  # written before; 0.5.3 looks at their shapes
        return run(q, k, v, self.layer, batch, save_kv_cache=False)

    def captured(self, size: int) -> tuple:
        return ()

    def _compared(self, out: Any, requests: Requests) -> Observation:
        import torch

        out, tokens = out.view(-1, mla.HEADS, mla.LORA), STRIDE if self.verify else 1
        outs = []
        for b, prefix in enumerate(requests.prefix):
            rows = slice(b * tokens, (b + 1) * tokens)
            latent = self.cache[self.pool.of(b, 0, prefix + STRIDE)].expand(-1, mla.HEADS, -1)
            outs.append(emulators.attention(self.q[rows], latent, latent[..., : mla.LORA], mla.DIM**-0.5, causal=True)[0])
        return observe(out[: tokens * len(requests.prefix)], torch.cat(outs))


class Proof(proof.Proof):
    modules, may_lack = mla.MODULES, mla.MAY_LACK

    def prepare(self) -> None:
        mla.prepare(self.engine)

    def scenario(self, seed: int) -> Observation:
        return self._run(seed, _SCALE)

    def control(self, seed: int) -> Observation:
        """Without a scale, and with one of 1."""
        return combine(self._run(seed, None), self._run(seed, 1.0))

    def _run(self, seed: int, scale: float | None) -> Observation:
        import torch

        draw, seen = torch.Generator().manual_seed(seed), []
        for mode in ("DECODE", "TARGET_VERIFY")[: 1 + self._verifies()]:
            step = Step(self.engine, mode, draw, scale)
            for count in (1, 3, ROOM):
                requests = graphs.uneven(draw, count)
                seen.append(step.eager(requests))
                if mode == "DECODE":  # a verification of old releases computes lengths in its graph
                    seen.append(step.replayed(requests))
        return combine(*seen)

    def _verifies(self) -> bool:
        """Up to 0.5.2 another backend does it."""
        forward = vars(self.engine[mla.BACKEND].TRTLLMMLABackend).get("forward_extend")
        names = code_of(forward).co_names if forward else ()
        return not {"trtllm_batch_decode_with_kv_cache_mla", "_run_decode_kernel"}.isdisjoint(names)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.attribute
        return {
            "the correction does nothing": replaced(wrap, "of_16_bits", lambda dtype: False),
            "the scale of values is hidden instead": replaced(
                wrap, "attribute", lambda layer, name, value: real(layer, "v_scale_float", value)
            ),
            "the scale is applied twice": replaced(
                wrap, "attribute", lambda layer, name, value: real(layer, name, layer.k_scale_float**2)
            ),
        }
