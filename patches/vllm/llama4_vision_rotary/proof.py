"""Proof of vllm.llama4-vision-rotary: queries and keys that a layer of the vision encoder hands to attention.

Real: the layer and its rotary embedding. Stood in for: the projections. Spared: text, whose tables are cast.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_VISION, _MODEL = f"{_ROTARY}.llama4_vision_rope", "vllm.model_executor.models.mllama4"
_BASE, _PATCH, _LONGEST = 10000, 14, 512


class Case(NamedTuple):
    """`side`: patches in a row of an image, 0 for text. The last token of an image has no place in it."""

    side: int
    heads: int = 4
    head: int = 88
    images: int = 2
    dtype: str = "bfloat16"


class Proof(Cases):
    modules = (_VISION,)
    may_lack = modules
    kernel = "none"
    needs = "Llama4VisionRotaryEmbedding.forward_native: _match_cos_sin_cache_dtype"
    absent = "the vision encoder of Llama 4 does not cast its table"
    bug = (Case(4), Case(24, heads=16, images=1, dtype="float16"), Case(2, heads=1, head=16, images=3, dtype="float32"))
    spared = (Case(0), Case(0, heads=2, head=64, dtype="float32"))
    broken = {
        "the correction does nothing": (wrap.moved, lambda real, table, query: table.to(query.dtype)),
        "queries and keys are turned back": (wrap.moved, lambda real, table, query: real(table, query).conj()),
        "a patch has the place of the next one": (wrap.moved, lambda real, table, query: real(table, query).roll(-1, 0)),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker

        torch.manual_seed(seed)
        rotary.forget()
        with Worker(DENSE, backend="flash_attn.FlashAttentionBackend", dtype=case.dtype) as worker:
            return self._image(worker, case) if case.side else self._text(case)

    def _image(self, worker: Any, case: Case) -> Observation:
        import torch
        from transformers import Llama4VisionConfig

        from attnfix.patches.lab.vllm.layers import handed_over

        width = case.heads * case.head
        config = Llama4VisionConfig(
            hidden_size=width, num_attention_heads=case.heads, image_size=case.side * _PATCH, patch_size=_PATCH
        )
        config.rope_theta = _BASE  # transformers of that time has it here
        layer = worker._in_dtype(import_module(_MODEL).Llama4VisionAttention, config, None)
        rows = torch.randn(case.images, case.side**2 + 1, 3 * width).to(worker.config.model_config.dtype)
        query, keys, _ = handed_over(layer, rows, rows)
        right = [_turned(part.unflatten(-1, (case.heads, -1)), case).flatten(2) for part in rows.double().split(width, -1)[:2]]
        return observe(torch.cat([query, keys], -1), torch.cat(right, -1))

    def _text(self, case: Case) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary

        rope, positions = rotary.made(case.head, _LONGEST, _BASE, rope_type="default"), torch.arange(40)
        parts = [torch.randn(40, heads * case.head, dtype=getattr(torch, case.dtype)) for heads in (case.heads, 1)]
        turns = rotary.frequencies(case.head, _BASE)
        right = [rotary.rotated(part.view(40, -1, case.head), positions, turns) for part in parts]
        return observe(torch.cat(rope.forward_native(positions, *parts), -1), torch.cat(right, -1))


def _turned(part: Any, case: Case) -> Any:
    """[images, patches + 1, heads, head] in float64: neighbours turn, half of them by columns and half by rows."""
    import torch

    from attnfix.patches.lab.rotary import frequencies

    at, turns = torch.arange(case.side**2), frequencies(case.head // 2, _BASE)
    angles = torch.cat([(of + 1).double()[:, None] * turns for of in (at % case.side, at // case.side)], -1)
    angles = torch.cat([angles, torch.zeros(1, case.head // 2)])[:, None]
    first, second = part[..., ::2], part[..., 1::2]
    turned = [first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()]
    return torch.stack(turned, -1).flatten(-2)
