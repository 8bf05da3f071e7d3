"""Rotary embeddings in float64, of frequencies as the papers define them, and tables of the engine's that are made anew."""

from __future__ import annotations

import math
from importlib import import_module
from inspect import signature
from typing import Any

ROTARY = "vllm.model_executor.layers.rotary_embedding"


def frequencies(dim: int = 64, base: float = 10000.0) -> Any:
    """[dim / 2] float64: radians for each position."""
    import torch

    return base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def rotated(vectors: Any, positions: Any, of: Any, scale: float = 1.0) -> Any:
    """[tokens, heads, dim] at [tokens] positions, rotated by halves at these frequencies; float64, heads beside each other."""
    import torch

    angles = positions.double()[:, None] * of
    cos, sin = angles.cos()[:, None] * scale, angles.sin()[:, None] * scale
    first, second = vectors.double().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).flatten(1)


def llama3(found: Any, factor: float, low_freq_factor: float, high_freq_factor: float, original: int) -> Any:
    """Long waves become `factor` times as long, short ones stay, and those between are between."""
    smooth = ((original * found / (2 * math.pi) - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return found * (smooth + (1 - smooth) / factor)


def yarn(dim: int, base: float, factor: float, fast: float, slow: float, original: int, truncate: bool) -> Any:
    """The same by dimensions: `fast` and `slow` are rotations within the original length."""
    import torch

    low, high = (dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    return frequencies(dim, base) * (1 - ramp + ramp / factor)


def made(dim: int, length: int, base: float, **rope: Any) -> Any:
    """A rotary embedding that the engine makes for these parameters, and that no other model of this process has."""
    forget()
    module: Any = import_module(ROTARY)
    known = signature(module.get_rope).parameters
    given = {"max_position": length, "rotary_dim": dim, "base": base, "rope_scaling": rope}
    if "rope_parameters" in known:  # from 0.12.0
        given["rope_parameters"] = {"rope_theta": base, **rope}
    return module.get_rope(dim, **{name: value for name, value in given.items() if name in known})


def forget() -> None:
    """Models that are made from now on share no rotary embedding with those before."""
    module: Any = import_module(ROTARY)
    module._ROPE_DICT.clear()
