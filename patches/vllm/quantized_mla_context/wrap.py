"""Corrections of vllm.quantized-mla-context.

The loops ask `self.kv_b_proj.weight` for the dtype that the layer takes, and the layer may read that same attribute as its
weight. So nothing is put on the layer: the engine's loop runs on a copy of the attention layer's `self`, whose `kv_b_proj`
names the dtype and calls the engine's own layer. The copy belongs to one call: other threads never see it.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.weights import stored_dtype


def takes_another_dtype(target: Any, instance: Any, attn_metadata: Any) -> Any:
    """The dtype that the layer takes; None where the loop gets it right, or another fix's correction runs in between."""
    dtype = stored_dtype(instance.kv_b_proj)
    if dtype is not None and dtype.is_floating_point:
        return None
    function = target.engine_function
    return function and input_dtype(instance.kv_b_proj, attn_metadata, function.__code__.co_names)


def compute_prefill_context(call: Call, instance: Any) -> Any:
    """Either context loop."""
    twin = object.__new__(type(instance))
    twin.__dict__.update(vars(instance), kv_b_proj=Projection(instance.kv_b_proj, call.found))
    result = call.run(call.target.function, twin)
    call.corrected()
    return result


def input_dtype(kv_b_proj: Any, metadata: Any, names: tuple[str, ...]) -> Any:
    """The dtype that the layer takes; None where a loop that uses these `names` gets it right.

    As 0.28.0 decides: a layer without `weight`, or with one packed into int32, takes the dtype it was made for; one packed into
    uint8 (NVFP4) takes what the workspace holds.
    """
    if "weight" not in names:  # the loop of several ranks casts nothing up to 0.24.0
        return None
    dtype = stored_dtype(kv_b_proj)
    if dtype is None:
        return kv_b_proj.params_dtype
    if dtype.is_floating_point:
        return None
    import torch

    if dtype == torch.uint8:
        return None if "uint8" in names else metadata.prefill.chunked_context.workspace.dtype
    return kv_b_proj.params_dtype


class Projection(partial):  # type: ignore[type-arg]  # a call of it is a call of the layer: an error there is the layer's
    """kv_b_proj as a context loop sees it: something to call, and a weight that has nothing but a dtype."""

    weight: Any

    def __new__(cls, layer: Any, dtype: Any) -> Any:
        made = super().__new__(cls, layer)
        made.weight = SimpleNamespace(dtype=dtype)
        return made
