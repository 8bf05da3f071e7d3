"""Correction of vllm.mrope-gptj-eager.

The kernel of M-RoPE turns a head's halves against each other, as Qwen's models have it. Where a model turns neighbours, its
embedding runs what it runs in compiled models: the engine's rotation in torch. Compilers and graphs see that alone.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.compiled_code import ChangedCode
from attnfix.patches.vllm.shared.current_config import current, has_folder_of_code, shares_keys

#: Whether a call takes the kernel, of an embedding up to 0.10.1
ASKED = "use_triton"
_code = ChangedCode("attnfix_mrope_turns_neighbours")


def turns_neighbours(target: Any, instance: Any, is_neox_style: bool) -> bool:
    """Whether the layer pairs neighbours. Classes that derive from it rotate in their own ways."""
    return not is_neox_style and type(instance).__name__ == "MRotaryEmbedding"


def init(call: Call, instance: Any) -> None:
    call()
    if not runs_kernel(instance):
        return
    server = current()
    if server is not None and (shares_keys(call.target, server) or has_folder_of_code(call.target, server)):
        return
    setattr(instance, ASKED, False)
    instance._forward_method = rotation(instance)
    _code.is_changed = True
    call.corrected()


def runs_kernel(layer: Any) -> bool:
    """Whether the layer is a custom op on a GPU; up to 0.10.1, on a GPU."""
    return getattr(layer, ASKED, getattr(layer._forward_method, "__name__", "") in ("forward_cuda", "forward_hip"))


def rotation(layer: Any) -> Any:
    """The engine's own in torch, which reads the style."""
    return layer.forward_native


def is_corrected(target: Any, instance: Any) -> bool:
    return _code.is_changed


def compute_hash(call: Call, instance: Any) -> str:
    """Compiled code is cached by it."""
    return cache_key(call())


def cache_key(stock: str) -> str:
    return _code.key(stock)
