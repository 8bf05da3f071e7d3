"""Proof of vllm.dots-ocr-ranks: query, keys and values of the tower's heads on each of several ranks.

Spared: one rank, and ranks that have a tower each.
"""

from __future__ import annotations

from inspect import signature
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attnfix.patches.lab.proof import NoSuchPath
from attnfix.patches.lab.vllm.vision_ranks import HEADS, Tower, Towers

from . import wrap

_QWEN2, _DOTS = (f"vllm.model_executor.models.{name}" for name in ("qwen2_vl", "dots_ocr"))

_BORROWS = f"{_DOTS}:DotsVisionAttention.forward: Qwen2VisionAttention"


class Proof(Towers):
    modules = (_QWEN2, _DOTS)
    may_lack = (_DOTS,)
    needs = "Qwen2VisionAttention.split_qkv: tensor_model_parallel_all_gather"
    absent = "Qwen2-VL's function gathers nothing"
    bug = (Tower(), Tower(ranks=4), Tower(bias=False))
    spared = (Tower(ranks=1), Tower(ranks=1, bias=False), Tower(whole=True), Tower(ranks=4, whole=True))
    broken = {
        "the correction does nothing": (wrap.ranks, lambda real, instance: instance.tp_size),
        "another layer is corrected": (wrap, "LAYER", "Qwen2VisionAttention"),
    }

    def prepare(self) -> None:
        super().prepare()
        if not self._has(_BORROWS):
            raise NoSuchPath("dots.ocr does not split with Qwen2-VL's function")

    def layer(self, case: Tower, dim: int, multimodal: Any) -> Any:
        dots = self.engine[_DOTS]
        more = (
            {"multimodal_config": multimodal} if "multimodal_config" in signature(dots.DotsVisionAttention).parameters else {}
        )
        with patch.object(dots, "MMEncoderAttention", lambda **of: _attention):
            return dots.DotsVisionAttention(SimpleNamespace(), dim, HEADS, case.bias, prefix="blocks.0.attn", **more)

    def qkv_of(self, layer: Any, hidden: Any) -> Any:
        try:
            layer(hidden, cu_seqlens=None)
        except _Reached as reached:
            return reached.args


class _Reached(Exception):
    """Attention was reached."""


def _attention(*, query: Any, key: Any, value: Any, **lengths: Any) -> None:
    raise _Reached(query, key, value)
