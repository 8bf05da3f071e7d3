"""Proof of vllm.qwen2-vision-ranks: query, keys and values of the tower's heads on each of several ranks.

Spared: one rank, ranks that have a tower each, and dots.ocr, whose layer borrows the function.
"""

from __future__ import annotations

from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.vllm.vision_ranks import HEADS, Tower, Towers

from . import wrap

_QWEN2, _DOTS = (f"vllm.model_executor.models.{name}" for name in ("qwen2_vl", "dots_ocr"))
_GATHERS = "Qwen2VisionAttention.split_qkv: tensor_model_parallel_all_gather"


class _Dots(Tower):
    """dots.ocr's tower."""


class Proof(Towers):
    modules = (_QWEN2, _DOTS)
    may_lack = (_DOTS,)
    needs = f"no {_GATHERS}"
    absent = "the function gathers what the ranks have"
    bug = (Tower(), Tower(ranks=4))
    spared = (Tower(ranks=1), Tower(whole=True), _Dots(), _Dots(ranks=4, bias=False))
    broken = {
        "the correction does nothing": (wrap, "LAYER", ""),
        "each rank takes the first heads": (wrap.of_rank, lambda real, every, ranks, rank: real(every, ranks, 0)),
        "keys and values change places": (wrap.of_rank, lambda real, every, ranks, rank: real(
            every.unflatten(-1, (3, -1))[..., (0, 2, 1), :].flatten(-2), ranks, rank
        )),
    }  # fmt: skip

    def layer(self, case: Tower, dim: int, multimodal: Any) -> Any:
        if isinstance(case, _Dots):
            return self.engine[_DOTS].DotsVisionAttention(SimpleNamespace(), dim, HEADS, case.bias, prefix="blocks.0.attn")
        cls = self.engine[_QWEN2].Qwen2VisionAttention
        given = {"use_data_parallel": case.whole, "multimodal_config": multimodal}
        known = {name: given[name] for name in signature(cls).parameters if name in given}
        return cls(embed_dim=dim, num_heads=HEADS, projection_size=dim, prefix="blocks.0.attn", **known)

    def qkv_of(self, layer: Any, hidden: Any) -> Any:
        """As the layer's `forward` does."""
        return self.engine[_QWEN2].Qwen2VisionAttention.split_qkv(layer, layer.qkv(hidden.unsqueeze(1))[0])
