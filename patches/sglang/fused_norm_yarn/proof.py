"""Proof of sglang.fused-norm-yarn: queries and keys of Qwen3 MoE that the fused kernel normalizes and rotates.

Real: the layer with its constructor, and what it gives the kernel. Stood in for: the CUDA kernel, by its formula, and the norms
that hold its weights. Spared: factors that are the ratio of the lengths, and models without YaRN.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe, replaced
from attnfix.patches.lab.rotary import frequencies, rotated, yarn
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)

from .wrap import asked_length

_MODEL, _ROTARY = "sglang.srt.models.qwen3_moe", "sglang.srt.layers.rotary_embedding"
_HEADS, _KV_HEADS, _DIM, _WIDTH, _BASE, _EPS = 4, 2, 64, 64, 10000.0, 1e-6


class Case(NamedTuple):
    """`longest`: `max_position_embeddings`. Without a factor, the model has no YaRN."""

    factor: float | None
    longest: int
    original: int = 256
    attention_factor: float | None = None


class Proof(Cases):
    modules = (_MODEL, f"{_ROTARY}.base", _ROTARY)
    may_lack = (f"{_ROTARY}.base",)
    kernel = "emulated"
    needs = "compute_yarn_parameters"
    absent = "no kernel of Qwen3 MoE normalizes and rotates in one"
    bug = (
        Case(4.0, 320),
        Case(2.0, 4096, original=512),
        Case(4.0, 256),
        Case(4.0, 320, attention_factor=1.0),
    )
    spared = (Case(4.0, 1024), Case(1.5, 384), Case(None, 320))
    broken = {
        "the correction does nothing": (asked_length, lambda real, rope: 320),
        "the length has the factor twice": (asked_length, lambda real, rope: real(rope) * rope["factor"]),
    }

    def prepare(self) -> None:
        super().prepare()
        construction.serve("--attention-backend", "triton", "--enable-fused-qk-norm-rope", draft=False)
        kernels = {"fused_qk_norm_rope": _kernel, "can_use_fused_qk_norm_rope": lambda *_: True}
        vars(self.engine[_MODEL]).update(kernels, _is_cuda=True, RMSNorm=_norm)

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        torch.manual_seed(seed)
        former = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            layer = self._made(case)
        finally:
            torch.set_default_dtype(former)
        for weight in layer.parameters():
            weight.data.copy_(torch.randn(weight.shape))
        positions = torch.randint(int((case.factor or 1) * case.original), (9,))
        qkv = torch.randn(9, (_HEADS + 2 * _KV_HEADS) * _DIM).bfloat16()
        rows = qkv.double().unflatten(-1, (-1, _DIM)).split([_HEADS, _KV_HEADS, _KV_HEADS], 1)
        weights = layer.q_norm.weight, layer.k_norm.weight
        turns, scale = frequencies(_DIM, _BASE), 1.0
        if case.factor:
            turns = yarn(_DIM, _BASE, case.factor, 32, 1, case.original, True)
            scale = case.attention_factor or 0.1 * math.log(case.factor) + 1
        right = [rotated(_normal(it, weight), positions, turns, scale) for it, weight in zip(rows, weights)]
        out = layer.apply_qk_norm_rope(qkv, positions, None)
        return observe(torch.cat(out, -1), torch.cat([*right, rows[2].flatten(1)], -1))

    def _made(self, case: Case) -> Any:
        import transformers

        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": _BASE}
        if case.factor:
            rope |= {"rope_type": "yarn", "factor": case.factor, "original_max_position_embeddings": case.original}
        if case.attention_factor:
            rope["attention_factor"] = case.attention_factor
        kind: Any = transformers.Qwen3MoeConfig
        config = kind(
            hidden_size=_WIDTH, num_attention_heads=_HEADS, num_key_value_heads=_KV_HEADS, head_dim=_DIM,
            max_position_embeddings=case.longest, rope_parameters=rope,
        )  # fmt: skip
        config.rope_theta = _BASE  # older releases' Transformers have it
        home = sys.modules[self.engine[_ROTARY].RotaryEmbedding.__module__]
        with replaced(home, "_is_cuda", True):
            return self.engine[_MODEL].Qwen3MoeAttention(
                _WIDTH, _HEADS, _KV_HEADS, rope_theta=_BASE, rope_scaling=rope if case.factor else None,
                max_position_embeddings=case.longest, head_dim=_DIM, rms_norm_eps=_EPS, config=config,
            )  # fmt: skip


def _norm(width: int, eps: float) -> Any:
    """In the place of `RMSNorm`, whose numbers the kernel reads."""
    import torch

    norm: Any = torch.nn.RMSNorm(width, eps)
    norm.variance_epsilon = eps
    return norm


def _normal(rows: Any, weight: Any) -> Any:
    return rows / (rows.square().mean(-1, keepdim=True) + _EPS).sqrt() * weight.double()


def _kernel(
    qkv: Any, heads: int, kv_heads: int, v_heads: int, width: int, eps: float, q_weight: Any, k_weight: Any, base: float,
    is_neox: bool, positions: Any, factor: float, low: float, high: float, scale: float,
) -> None:  # fmt: skip
    """In the place of `fused_qk_norm_rope`, by halves."""
    import torch

    ramp = ((torch.arange(width // 2) - low) / ((high - low) or 0.001)).clamp(0, 1)
    turns = frequencies(width, base) * (1 - ramp + ramp / factor)
    rows = qkv.view(len(qkv), -1, width)
    for first, count, weight in ((0, heads, q_weight), (heads, kv_heads, k_weight)):
        turned = rotated(_normal(rows[:, first : first + count].double(), weight), positions, turns, scale)
        rows[:, first : first + count] = turned.view(len(qkv), count, width).to(qkv.dtype)
