"""Argument checks shared by the ops: one sentence that names the argument, raised before any launch.

They look at host-side metadata alone, never at the contents of a tensor: that would be a device sync.
"""

from __future__ import annotations

import torch

MAX_HEADS = 256
MAX_HEAD_SIZE = 576
VALUE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
INDEX_DTYPES = (torch.int32, torch.int64)
FP8 = torch.float8_e4m3fn

Strides = tuple[int, ...]


def values(name: str, tensor: object) -> torch.Size:
    """A [tokens, heads, head_size] tensor; returns its shape."""
    _tensor(name, tensor)
    shape = tensor.shape
    if len(shape) != 3:
        raise ValueError(f"{name} must have the shape [tokens, heads, head_size], not {list(shape)}")
    if not 1 <= shape[1] <= MAX_HEADS:
        raise ValueError(f"{name} must have 1 to {MAX_HEADS} heads, not {shape[1]}")
    if not 8 <= shape[2] <= MAX_HEAD_SIZE or shape[2] % 8:
        raise ValueError(f"{name} must have a head size that is a multiple of 8 up to {MAX_HEAD_SIZE}, not {shape[2]}")
    return shape


def value_dtype(name: str, dtype: torch.dtype) -> None:
    if dtype not in VALUE_DTYPES:
        raise TypeError(f"{name} must be bfloat16, float16 or float32, not {dtype}")


def same(name: str, tensor: object, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """A tensor of exactly this shape, dtype and device."""
    _tensor(name, tensor)
    if tensor.shape != shape:
        raise ValueError(f"{name} must have the shape {list(shape)}, not {list(tensor.shape)}")
    if tensor.dtype != dtype:
        raise TypeError(f"{name} must be {dtype}, not {tensor.dtype}")
    on_device(name, tensor, device)


def index(name: str, tensor: object, device: torch.device) -> int:
    """A 1-D int32 or int64 tensor on this device; returns its length."""
    _tensor(name, tensor)
    if tensor.dim() != 1:
        raise ValueError(f"{name} must have one dimension, not {tensor.dim()}")
    if tensor.dtype not in INDEX_DTYPES:
        raise TypeError(f"{name} must be int32 or int64, not {tensor.dtype}")
    on_device(name, tensor, device)
    return tensor.shape[0]


def offsets(name: str, tensor: object, requests: int, device: torch.device) -> None:
    """Offsets of `requests` requests: one more element than requests."""
    length = index(name, tensor, device)
    if length != requests + 1:
        raise ValueError(f"{name} must have one element more than there are requests ({requests}), not {length}")


def on_device(name: str, tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device} like the output, not on {tensor.device}")


def writable(name: str, tensor: torch.Tensor) -> None:
    """No two elements of an output may share memory (an expanded tensor)."""
    if not tensor.is_contiguous() and not _injective(tensor.shape, tensor.stride()):
        raise ValueError(f"{name} must not overlap itself (strides {tensor.stride()} of shape {list(tensor.shape)})")


def disjoint(name: str, written: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """`written` shares no memory with `other`."""
    if written.numel() and other.numel() and _overlap(written, other):
        raise ValueError(f"{name} must not overlap {other_name}")


def disjoint_or_same(name: str, written: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """`written` is `other` element for element, or shares no memory with it."""
    if not written.numel() or not _overlap(written, other):
        return
    if written.data_ptr() != other.data_ptr() or written.dtype != other.dtype or not _same_layout(written, other):
        raise ValueError(f"{name} must be exactly {other_name} (same memory, strides and dtype) or not overlap it")


def _tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    rows = zip(a.shape, b.shape, a.stride(), b.stride(), strict=False)
    return all(n == m and (n == 1 or s == t) for n, m, s, t in rows)


def _span(t: torch.Tensor) -> int:
    """Bytes from the first to past the last element."""
    span = 1
    for n, s in zip(t.shape, t.stride(), strict=True):
        span += (n - 1) * s
    return span * t.element_size()


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    at_a, at_b = a.data_ptr(), b.data_ptr()
    if at_a < at_b:
        if at_a + _span(a) <= at_b:
            return False
    elif at_b + _span(b) <= at_a:
        return False
    return not _interleaved(a, b)


def _interleaved(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two views of one buffer with equal strides never meet, such as the halves of every row or head group."""
    size = a.element_size()
    distance = abs(a.data_ptr() - b.data_ptr())
    if a.dtype != b.dtype or distance % size or not _same_layout(a, b) or not _injective(a.shape, a.stride()):
        return False
    distance //= size
    extent = 1  # of one block of all dimensions seen so far; blocks repeat with the next stride
    for stride, n in _steps(a.shape, a.stride()):
        if extent <= distance and distance + extent <= stride:
            return True
        extent += (n - 1) * stride
    return False


def _injective(shape: Strides, strides: Strides) -> bool:
    extent = 1
    for stride, n in _steps(shape, strides):
        if stride < extent:
            return False
        extent += (n - 1) * stride
    return True


def _steps(shape: Strides, strides: Strides) -> list[tuple[int, int]]:
    return sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1)
