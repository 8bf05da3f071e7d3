"""MLA prefill with cached context through a quantised kv_b_proj, on one rank and on two: 0.17.0-0.33.0.

The layer is the engine's ColumnParallelLinear. Its methods: the engine's own for AWQ, whose layers have no `weight`, with
`awq_gemm` emulated; and a stand-in that keeps int8 values in a `weight` of another dtype, as the engine leaves them after
loading: int32 (FP8 and NVFP4 repacked for Marlin: `prepare_fp8_layer_for_marlin`, `prepare_fp4_layer_for_marlin`), uint8
(NVFP4) or int8 (W8A8; vLLM's PR 37245 shows the error of the real one). Like those kernels it refuses other inputs than it was
made for; Marlin says "unsupported `a` scalar_type".

Where the engine raises, the error is infinite. The rest stands in `mla_prefill`. A case is how the weight is kept: "awq", the
dtype that it is packed into, or "plain" without quantisation.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import Cases, Observation, observe

from .mla_prefill import Batch, MlaPrefill, Projection

_LINEAR = "vllm.model_executor.layers.linear"
_AWQ = "vllm.model_executor.layers.quantization.awq"
_AUTO_AWQ = "vllm.model_executor.layers.quantization.auto_awq"  # its home from 0.24

_GROUP = 128  # rows of the weight that share a scale


def _words(values: Any) -> Any:
    """[rows, columns] of 0..15 -> int32 [rows, columns / 8]"""
    import torch

    shifts = 4 * torch.tensor(emulators.AWQ_ORDER)
    return (values.long().unflatten(1, (-1, len(shifts))) << shifts).sum(-1).to(torch.int32)


class _Packed:
    """A linear method that takes bfloat16 and reads its weight from the layer."""

    def __init__(self, weight: Any, scale: float):
        self.weight, self.scale = weight, scale

    def create_weights(self, layer: Any, *sizes: Any, **attributes: Any) -> None:
        import torch

        layer.register_parameter("weight", torch.nn.Parameter(self.weight, requires_grad=False))

    def apply(self, layer: Any, x: Any, bias: Any = None) -> Any:
        import torch

        if x.dtype != torch.bfloat16:
            raise emulators.UnsupportedInput(f"unsupported `a` scalar_type: {x.dtype}")
        return (x.double() @ (layer.weight.view(torch.int8).double() * self.scale).t()).to(x.dtype)


class QuantizedProjection(Cases, MlaPrefill):
    """Base of the proofs."""

    modules = (*MlaPrefill.modules, _LINEAR, _AWQ, _AUTO_AWQ)
    may_lack = (*MlaPrefill.modules, _AWQ, _AUTO_AWQ)
    measure = "relative error against float64, infinite where the engine raises"
    batch = Batch((70, 65, 79, 80), (3, 2, 4, 5))  # five chunks for everyone: none is empty, which is another bug

    def prepare(self) -> None:
        MlaPrefill.prepare(self)
        self.mla.ops.awq_gemm = emulators.awq_gemm
        one_rank: Any = sys.modules["vllm.distributed.parallel_state"]
        one_rank._TP = SimpleNamespace(rank_in_group=0, world_size=1)

    def run(self, case: str, seed: int) -> Observation:
        try:
            return observe(*self.outputs(seed, self.batch, projection=self.projection(case)))
        except emulators.UnsupportedInput as error:
            return Observation(math.inf, str(error))
        except AttributeError as error:
            if str(error) != "'ColumnParallelLinear' object has no attribute 'weight'":
                raise
            return Observation(math.inf, str(error))

    def projection(self, kept: str) -> Projection:
        """kv_b_proj that keeps its weight so."""
        import torch

        own = {"plain": self._unquantised, "awq": self._awq}
        return own[kept] if kept in own else partial(self._packed, getattr(torch, kept))

    def _layer(self, weight: Any, method: Any) -> Any:
        """The engine's layer of a weight [out, in]; without a linear method, unquantised."""
        quantised = SimpleNamespace(get_quant_method=lambda layer, prefix: method, online_quantization_config=None)
        return self.engine[_LINEAR].ColumnParallelLinear(
            weight.shape[1], weight.shape[0], bias=False, params_dtype=weight.dtype, quant_config=quantised if method else None
        )

    def _unquantised(self, weight: Any) -> tuple[Any, Any]:
        layer = self._layer(weight, None)
        layer.weight.data.copy_(weight)
        return layer, weight.double()

    def _awq(self, weight: Any) -> tuple[Any, Any]:
        """Four bits per value, with a scale and a zero point per group and column."""
        awq = self.engine.get(_AWQ) or self.engine[_AUTO_AWQ]
        method = getattr(awq, "AWQLinearMethod", None) or awq.AutoAWQLinearMethod
        layer = self._layer(weight, method(SimpleNamespace(group_size=_GROUP, pack_factor=len(emulators.AWQ_ORDER))))
        groups = weight.t().double().unflatten(0, (-1, _GROUP))
        low, high = groups.amin(1), groups.amax(1)
        scales = ((high - low) / 15).to(weight.dtype).double()
        zeros = (-low / scales).round().clamp(0, 15)
        values = (groups / scales[:, None] + zeros[:, None]).round().clamp(0, 15)
        layer.qweight.data.copy_(_words(values.flatten(0, 1)))
        layer.qzeros.data.copy_(_words(zeros))
        layer.scales.data.copy_(scales)
        layer.quant_method.process_weights_after_loading(layer)
        return layer, ((values - zeros[:, None]) * scales[:, None]).flatten(0, 1).t()

    def _packed(self, dtype: Any, weight: Any) -> tuple[Any, Any]:
        """Values of int8 in a weight of `dtype`."""
        import torch

        scale = float(weight.abs().max()) / 127
        values = (weight / scale).round().to(torch.int8)
        return self._layer(weight, _Packed(values.view(dtype), scale)), values.double() * scale
