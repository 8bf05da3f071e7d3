"""Proof of vllm.int8-mla-context: MLA prefill with cached context, through a kv_b_proj of int8, on one rank and on two.

The layer is the engine's ColumnParallelLinear. Its method is a stand-in for those of W8A8: it keeps int8 in `weight` and, like
the op that quantises its inputs, takes floating-point inputs only (vLLM's PR 37245 shows the error of the real one). Where the
engine raises, the error is infinite. What else is real and what is emulated stands in `patches/lab/vllm/mla_prefill.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, replaced
from attnfix.patches.vllm.quantized_mla_context import proof as quantized


class Proof(quantized.Proof):
    def prepare(self) -> None:
        if not hasattr(self.mla, "_get_kv_b_proj_input_dtype"):
            raise NoSuchPath("the context loops ask the weight by themselves, which vllm.quantized-mla-context corrects")
        super().prepare()

    def scenario(self, seed: int) -> Observation:
        import torch

        return self._run(seed, partial(self._packed, torch.int8))

    def control(self, seed: int) -> Observation:
        """Without quantisation, and with a weight of int32, of uint8, of FP8."""
        import torch

        packed = [partial(self._packed, dtype) for dtype in (torch.int32, torch.uint8, torch.float8_e4m3fn)]
        return combine(self._run(seed, self._unquantised), *(self._run(seed, layer) for layer in packed))

    def sabotages(self) -> dict[str, Any]:
        import torch

        from . import wrap

        return {
            "the correction does nothing": replaced(wrap, "made_for", lambda kv_b_proj: torch.int8),
            "the input takes another floating dtype": replaced(wrap, "made_for", lambda kv_b_proj: torch.float16),
        }
