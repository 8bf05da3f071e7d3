"""Proof of vllm.kv-scale-float: a layer loads calibrated scales, then one query attends to a cache of FP8.

Real: the engine's method that loads the scales, its base class, the classes of the backends. Emulated: the layer, with the
attributes that the engine's has before anything is loaded, and the kernels, which read scales as numbers (FlashInfer:
`k_scale=layer._k_scale_float`, `bmm1_scale`) or as tensors (FlashAttention's descales). Values are written divided by the
tensors, as the engine's `reshape_and_cache` does.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import Observation, code_of, combine, observe, replaced

_COMPRESSED = "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors"
_BACKENDS = "vllm.v1.attention.backends"
_FLASHINFER, _FLASH, _TRITON = (f"{_BACKENDS}.{name}" for name in ("flashinfer", "flash_attn", "triton_attn"))

_TOKENS, _HEADS, _D = 40, 2, 64
_SCHEME = {"type": "float", "num_bits": 8, "strategy": "tensor", "symmetric": True, "dynamic": False}
_CALIBRATED, _NOT_CALIBRATED = (0.5, 0.25, 2.0), (1.0, 1.0, 1.0)  # of query, key and value


def _attend(q: Any, k: Any, v: Any, q_scale: float, k_scale: float, v_scale: float) -> Any:
    """Attention of what was written, by these scales; float64."""
    import torch

    scores = torch.einsum("qhd,khd->hqk", q, k) * (q_scale * k_scale * _D**-0.5)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v) * v_scale


class Proof(proof.Proof):
    modules = (_COMPRESSED, _FLASHINFER, _FLASH, _TRITON)

    def scenario(self, seed: int) -> Observation:
        return self._run(seed, self.engine[_FLASHINFER].FlashInferImpl, _CALIBRATED)

    def control(self, seed: int) -> Observation:
        """A checkpoint that was not calibrated; and backends that read the tensors: Triton's refuses numbers other than 1."""
        read_tensors = (self.engine[_FLASH].FlashAttentionImpl, self.engine[_TRITON].TritonAttentionImpl)
        others = (self._run(seed, impl, _CALIBRATED, "") for impl in read_tensors)
        return combine(self._run(seed, self.engine[_FLASHINFER].FlashInferImpl, _NOT_CALIBRATED), *others)

    def _run(self, seed: int, impl: Any, scales: tuple[float, ...], read: str = "_float") -> Observation:
        import torch

        if (
            read and "_q_scale_float" not in code_of(impl.forward).co_names
        ):  # up to 0.10.0 FlashInfer's queries are not quantised
            scales = (1.0, *scales[1:])
        layer = self._loaded(impl, scales)
        draw = torch.Generator().manual_seed(seed)
        tensors = [torch.randn(count, _HEADS, _D, generator=draw) for count in (1, _TOKENS, _TOKENS)]
        names = ("_q_scale", "_k_scale", "_v_scale")
        written = [(x / getattr(layer, name)).to(torch.float8_e4m3fn).double() for x, name in zip(tensors, names)]
        out = _attend(*written, *(float(getattr(layer, name + read)) for name in names))
        seen = observe(out.float(), _attend(*written, *scales))
        numbers = tuple(getattr(layer, f"{name}_float") for name in names)
        return Observation(seen.error, hashlib.sha256(f"{seen.bits} {numbers if not read else ''}".encode()).hexdigest())

    def _loaded(self, impl: Any, scales: tuple[float, ...]) -> Any:
        """A layer of that backend after the engine has loaded a checkpoint with these scales."""
        import torch

        layer: Any = torch.nn.Module()
        layer.impl, layer.num_kv_heads = object.__new__(impl), _HEADS
        layer.kv_cache_dtype, layer.calculate_kv_scales = "fp8", False
        layer.query_quant = object()  # its queries are quantised; 0.10.2 has no such attribute and asks the GPU instead
        for name in ("q", "k", "v", "prob"):
            layer.register_buffer(f"_{name}_scale", torch.tensor(1.0))
            setattr(layer, f"_{name}_scale_float", 1.0)
            setattr(layer, f"_{name}_scale_cpu", torch.tensor(1.0))
        method = self.engine[_COMPRESSED].CompressedTensorsKVCacheMethod(SimpleNamespace(kv_cache_scheme=_SCHEME))
        method.create_weights(layer)
        for name, scale in zip(("q_scale", "k_scale", "v_scale"), scales):
            getattr(layer, name).data.fill_(scale)
        method.process_weights_after_loading(layer)
        return layer

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "the correction does nothing": replaced(wrap, "QUANTISED", frozenset()),
            "every number becomes 1": replaced(wrap, "largest", lambda scale: 1.0),
            "the query's scale is left out": replaced(wrap, "quantises_query", lambda layer: False),
        }
