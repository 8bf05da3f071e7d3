"""Rotary embeddings in float64, of frequencies as the papers define them."""

from __future__ import annotations

import math
from typing import Any


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


def rotated_in_pairs(vectors: Any, positions: Any, of: Any) -> Any:
    """The same, where neighbours are a pair and not the halves."""
    import torch

    halves = torch.cat([vectors[..., ::2], vectors[..., 1::2]], -1)
    turned = rotated(halves, positions, of).view(vectors.shape)
    return torch.stack(turned.chunk(2, -1), -1).flatten(2).flatten(1)
