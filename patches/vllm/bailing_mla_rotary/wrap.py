"""Correction of vllm.bailing-mla-rotary.

The settings of RoPE that a layer of MLA builds from the model's config have the factor of linear attention. The layer is made
by the engine's constructor, with settings whose factor is 1.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound
from attnfix.patches.vllm.shared.compiled_code import ChangedCode
from attnfix.patches.vllm.shared.current_config import current, has_folder_of_code, kept_here

_BUILD, _FACTOR = "_build_rope_parameters", "partial_rotary_factor"
_code = ChangedCode("attnfix_mla_rotated_in_full")


def rotates_a_part(target: Any, instance: Any, config: Any) -> bool:
    rope = target.function.__globals__[_BUILD](config)
    if not rope or rope.get(_FACTOR, 1) == 1:
        return False
    server = current()
    return server is None or (kept_here(target, server) and not has_folder_of_code(target, server))


def init(call: Call, instance: Any) -> None:
    build = call.target.function.__globals__[_BUILD]
    ours = call.guard(lambda config: in_full(build(config)), build)
    call.run(rebound(call.target.function, **{_BUILD: ours}))
    if not call.failed:
        _code.is_changed = True
        call.corrected()


def in_full(rope: dict[str, Any]) -> dict[str, Any]:
    return {**rope, _FACTOR: 1.0}


def is_corrected(target: Any, instance: Any) -> bool:
    return _code.is_changed


def compute_hash(call: Call, instance: Any) -> str:
    """Compiled code is cached by it."""
    return cache_key(call())


def cache_key(stock: str) -> str:
    return _code.key(stock)
