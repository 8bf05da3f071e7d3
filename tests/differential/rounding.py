"""Triton's interpreter with bfloat16 and FP8 as a GPU has them.

The interpreter keeps both as the integers of their bits. A conversion to them cuts off where a GPU rounds to the nearest (and
one that rounds up loses its carry in every second binade: 0.49 becomes 0.25 in FP8), a product of bfloat16 matrices multiplies
those integers, and so do operators of single elements; and what a comparison says is made an integer where it is spread over a
block. Here torch converts, and what is not converted is computed in float32 and rounded, as the instructions of a GPU do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import cuda
from triton.runtime import interpreter

_TORCH = {
    tl.float32: torch.float32, tl.float16: torch.float16, tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}  # fmt: skip
_BITS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}


def install() -> None:
    """Once, before a kernel runs. Formats of other makers than NVIDIA stay as they were."""
    builder = interpreter.InterpreterBuilder
    interpreter._convert_float = _rounded(interpreter._convert_float)
    builder.binary_op = _in_float32(builder.binary_op)
    builder.unary_op = _in_float32(builder.unary_op)
    builder.create_dot = _dot(builder.create_dot)
    interpreter.ReduceOps.apply = _reduced(interpreter.ReduceOps.apply)
    for name in ("gdc_wait", "gdc_launch_dependents"):  # which is about when kernels begin, and no result
        setattr(cuda, name, lambda **_: None)


def _rounded(cut: Callable[..., Any]) -> Callable[..., Any]:
    """Of an array that holds `source` to one of the bits of `target`, to the nearest; too large for FP8 is its largest."""

    def convert(data: Any, source: Any, target: Any, rounding_mode: Any) -> Any:
        if source not in _TORCH or target not in _TORCH or not data.size:
            return cut(data, source, target, rounding_mode)
        given, wanted = torch.frombuffer(bytearray(data.tobytes()), dtype=_TORCH[source]), _TORCH[target]
        if wanted.itemsize == 1:
            most = torch.finfo(wanted).max
            given = given.float().clamp(-most, most)
        return given.to(wanted).view(_BITS[wanted.itemsize]).numpy().reshape(data.shape)

    return convert


def _wide(builder: Any, handle: Any) -> Any:
    return builder.cast_impl(handle, tl.float32) if handle.dtype.scalar == tl.bfloat16 else handle


def _in_float32(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def operate(self: Any, one: Any, *more: Any) -> Any:
        *others, operator = more
        result = real(self, _wide(self, one), *(_wide(self, other) for other in others), operator)
        if result.data.dtype == np.bool_:  # the interpreter calls it by the type of what was compared
            return interpreter.TensorHandle(result.data, tl.int1)
        return self.cast_impl(result, tl.bfloat16) if one.dtype.scalar == tl.bfloat16 else result

    return operate


def _dot(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def dot(self: Any, one: Any, other: Any, *more: Any) -> Any:
        return real(self, _wide(self, one), _wide(self, other), *more)

    return dot


def _reduced(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def apply(self: Any, given: Any) -> Any:
        if isinstance(given, tuple) or given.dtype != tl.bfloat16:
            return real(self, given)
        return real(self, given.to(tl.float32)).to(tl.bfloat16)

    return apply
