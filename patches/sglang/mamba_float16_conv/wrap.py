"""Correction of sglang.mamba-float16-conv.

`MambaMixer2.forward` runs as the engine has it. The states of the convolution that it is handed are the same memory, as a
tensor that converts what is assigned to its entries. Everything else that is done with them is torch's own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from attnfix.compat.fix import Call


def saves_in_another_dtype(target: Any, instance: Any, hidden_states: Any, layer_cache: Any, metadata: Any) -> bool:
    """Whether a prefill copies tokens to states that are of another dtype than the layer. Host values alone."""
    return metadata.track_conv_indices is not None and layer_cache.conv[0].dtype != hidden_states.dtype


def forward(call: Call, instance: Any, layer_cache: Any) -> Any:
    """Returns what the engine does, which depends on the release."""
    first, *others = layer_cache.conv
    states = converting(first)
    result = call(layer_cache=replace(layer_cache, conv=[states, *others]))
    if getattr(states, "converted", False):
        call.corrected()
    return result


def converting(states: Any) -> Any:
    """A view of `states` that takes values of any dtype at its entries."""
    return states.as_subclass(_converting_tensor())


@cache
def _converting_tensor() -> type:
    """Made at the first use, as torch is not imported before the engine does it."""
    import torch

    class ConvertingTensor(torch.Tensor):
        # What is computed from it is a plain tensor
        __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

        def __setitem__(self, index: Any, values: Any) -> None:
            super().__setitem__(index, values.to(self.dtype))
            self.converted = True

    return ConvertingTensor
