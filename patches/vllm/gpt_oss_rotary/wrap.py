"""Correction of vllm.gpt-oss-rotary.

`truncate` of `rope_scaling` says whether the bounds between long and short waves are rounded; gpt-oss says no. The engine reads
it from 0.12.0 on. The table is written anew in its place: code that was compiled for it, and graphs, read it there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute
from attnfix.patches.shared.rebound import rebound
from attnfix.patches.vllm.shared.current_config import current, kept_here

#: Of `rope_scaling`, and of a rotary embedding from 0.12.0 on
_READ = "truncate"
_FREQUENCIES, _RANGE = "_compute_inv_freq", "yarn_find_correction_range"


def rounds(target: Any, instance: Any, config: Any) -> bool:
    """Whether the checkpoint asks for bounds that are not rounded."""
    rotary, server = getattr(config, "rope_scaling", None) or {}, current()
    return not rotary.get(_READ, True) and (server is None or kept_here(target, server))


def make(call: Call, instance: Any) -> None:
    """All layers share one rotary embedding: it is corrected with the first of them."""
    call()
    rotary = instance.rotary_emb
    if getattr(rotary, _READ, True):
        rotary.cos_sin_cache.copy_(table(rotary))
        rotary.truncate = False
        call.corrected()


def table(rotary: Any) -> Any:
    """[positions, dim] float32, as the engine computes it of other bounds."""
    stock = getattr(type(rotary), _FREQUENCIES)
    frequencies = rebound(stock, **{_RANGE: _not_rounded(stock.__globals__[_RANGE])})
    with attribute(rotary, _FREQUENCIES, MethodType(frequencies, rotary)):
        return rotary._compute_cos_sin_cache()


def _not_rounded(stock: Any) -> Callable[..., tuple[float, float]]:
    bound = stock.__globals__["yarn_find_correction_dim"]

    def yarn_find_correction_range(low_rot: float, high_rot: float, dim: int, *of: Any) -> tuple[float, float]:
        return within(bound(low_rot, dim, *of), bound(high_rot, dim, *of), dim)

    return yarn_find_correction_range


def within(low: float, high: float, dim: int) -> tuple[float, float]:
    return max(low, 0), min(high, dim - 1)
