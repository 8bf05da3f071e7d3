"""Correction of sglang.yarn-settings.

`get_rope` gives YaRN four of the checkpoint's settings. It drops `truncate` up to 0.5.6.post2, and `mscale` with
`mscale_all_dim` up to 0.5.15.post1. The table is written anew in its place before anything reads it: graphs and compiled code
find it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType, SimpleNamespace
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import launch
from attnfix.patches.shared.attribute import attribute
from attnfix.patches.shared.rebound import rebound
from attnfix.patches.shared.yarn_scale import of_pair, usual_scale

_CLASS, _FREQUENCIES, _RANGE, _ROUNDED = (
    "YaRNScalingRotaryEmbedding", "_compute_inv_freq", "_yarn_find_correction_range", "truncate",
)  # fmt: skip
#: Arguments of a server -> who reads its keys. Storage can be attached to HiCache while it serves
READERS = {"enable_hierarchical_cache": "HiCache, whose storage outlives a server,", **launch.READERS}


def sharer(args: Any) -> str | None:
    """Who shares keys of a server that was launched with these arguments; None: nobody does."""
    if args is None:
        return "the launch of this server is not known: another one perhaps"
    if args.disaggregation_mode != "null":
        return "the other half of --disaggregation-mode"
    return launch.reader(args, READERS)


def unread(target: Any, instance: Any, rope_scaling: Any = None) -> tuple[bool, float | None] | None:
    """Settings of YaRN that the engine does not read: whether bounds are not rounded, and another scale than its own."""
    if not rope_scaling or rope_scaling.get("rope_type", rope_scaling.get("type")) != "yarn" or "mrope_section" in rope_scaling:
        return None
    reads = getattr(target.function.__globals__[_CLASS].__init__, "__kwdefaults__", None) or {}
    found = _ROUNDED not in reads and not rope_scaling.get(_ROUNDED, True), own_scale(rope_scaling)
    if found == (False, None):
        return None
    if shared_by := sharer(launch.server_args()):
        target.leave_out(f"{shared_by} shares keys, which would be rotated otherwise")
    return None if shared_by else found


def get_rope(call: Call, instance: Any) -> Any:
    """Layers with the same settings share one rotary embedding: it is corrected with the first of them."""
    rotary = call()
    bounds, asked = call.found
    if type(rotary) is not call.target.function.__globals__[_CLASS]:
        return rotary
    bounds = bounds and getattr(rotary, _ROUNDED, True)
    if bounds or asked not in (None, rotary.mscale):
        rotary.mscale = rotary.mscale if asked is None else asked
        rotary.cos_sin_cache.copy_(table(rotary, bounds))
        if bounds:
            rotary.truncate = False
        call.corrected()
    return rotary


def table(rotary: Any, bounds: bool) -> Any:
    """[positions, dim] float32, as the engine computes it; with `bounds` between bounds that are not rounded."""
    if not bounds:
        return rotary._compute_cos_sin_cache()
    stock = getattr(type(rotary), _FREQUENCIES)
    exact = rebound(stock.__globals__[_RANGE], math=SimpleNamespace(floor=bound, ceil=bound))
    with attribute(rotary, _FREQUENCIES, MethodType(rebound(stock, **{_RANGE: exact}), rotary)):
        return rotary._compute_cos_sin_cache()


def bound(dimension: float) -> float:
    """In the place of rounding up and down."""
    return dimension


def own_scale(rope: Mapping[str, Any]) -> float | None:
    """The scale of queries and keys that `mscale` and `mscale_all_dim` ask for; None where the engine's is it.

    Transformers puts `attention_factor` over both, which the engine does not read. `attn_factor` is the engine's alone: a
    config.json may have the right scale by it.
    """
    if any(rope.get(name) is not None for name in ("attention_factor", "attn_factor")):
        return None
    scale = of_pair(rope)
    return None if scale == usual_scale(rope.get("factor", 1.0)) else scale
