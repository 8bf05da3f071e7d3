"""Correction of vllm.bailing-partial-rotary.

The engine reads how much of a head is rotated from `rotary_dim` of the model's config. A checkpoint may say it by
`partial_rotary_factor` alone: then its `rotary_dim` is set, before the first layer reads it. From transformers 5.20 on, a
config that comes with the checkpoint has the factor among its settings of RoPE alone, as a config.json has that it saved. The
engine itself reads the factor from 0.23.0 on, but not there.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.compiled_code import ChangedCode
from attnfix.patches.vllm.shared.current_config import current, has_folder_of_code, kept_here

_code = ChangedCode("attnfix_rotary_factor_read")


def width_unread(target: Any, instance: Any, config: Any) -> int | None:
    """Dimensions of a head that are to be rotated, where the engine would rotate all of them."""
    factor = factor_of(config)
    if not factor or not 0 < factor < 1 or getattr(config, "rotary_dim", None) is not None:
        return None
    if getattr(config, "partial_rotary_factor", None) is not None and reads_factor(type(instance)):
        return None
    server = current()
    if server is not None and not (kept_here(target, server) and not has_folder_of_code(target, server)):
        return None
    if server is not None and fuses(server):
        target.leave_out("enable_qk_norm_rope_fusion is on, whose kernel misreads tables of a part of a head")
        return None
    return int((config.head_dim or config.hidden_size // config.num_attention_heads) * factor) or None


def factor_of(config: Any) -> float | None:
    factor = getattr(config, "partial_rotary_factor", None)
    return (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor") if factor is None else factor


@cache
def reads_factor(layer: Any) -> bool:
    """Whether the layer's code takes the factor from the model's config, as it does from 0.23.0 on."""
    return "partial_rotary_factor" in inspect.unwrap(layer.__init__).__code__.co_varnames


def fuses(server: Any) -> bool:
    """Whether a kernel of its own normalises and rotates queries and keys in compiled code."""
    return bool(getattr(server.compilation_config.pass_config, "enable_qk_norm_rope_fusion", False))


def init(call: Call, instance: Any, config: Any) -> None:
    config.rotary_dim = width(call.found)
    _code.is_changed = True
    call.corrected()
    call()


def width(asked: int) -> int:
    return asked


def is_corrected(target: Any, instance: Any) -> bool:
    return _code.is_changed


def compute_hash(call: Call, instance: Any) -> str:
    """Compiled code is cached by it."""
    return cache_key(call())


def cache_key(stock: str) -> str:
    return _code.key(stock)
