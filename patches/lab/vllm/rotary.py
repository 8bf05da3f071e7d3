"""Rotary embeddings of the engine's that are made anew, and those in float64 that they are compared with."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import Any

from attnfix.patches.lab.rotary import frequencies, llama3, rotated, yarn

__all__ = ["forget", "frequencies", "llama3", "made", "rotated", "yarn"]
ROTARY = "vllm.model_executor.layers.rotary_embedding"


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
