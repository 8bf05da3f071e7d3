"""Argument checks shared by the ops: one sentence that names the argument, raised before any launch.

They look at host-side metadata alone, never at the contents of a tensor: that would be a device sync.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch

MAX_TOKENS = 2**31 - 1
MAX_HEADS = 256
MAX_HEAD_SIZE = 576
VALUE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
INDEX_DTYPES = (torch.int32, torch.int64)
FP8 = torch.float8_e4m3fn

Sizes = tuple[int, ...]
Memory = tuple[int, int, str, torch.Tensor]  # addresses of the first byte and past the last one; a plain tuple is cheap


def values(name: str, tensor: torch.Tensor) -> torch.Size:
    """A [tokens, heads, head_size] tensor; returns its shape."""
    _tensor(name, tensor)
    shape = tensor.shape
    if len(shape) != 3:
        raise ValueError(f"{name} must have the shape [tokens, heads, head_size], not {list(shape)}")
    if shape[0] > MAX_TOKENS:
        raise ValueError(f"{name} must have at most {MAX_TOKENS} tokens, not {shape[0]}")
    if not 1 <= shape[1] <= MAX_HEADS:
        raise ValueError(f"{name} must have 1 to {MAX_HEADS} heads, not {shape[1]}")
    if not 8 <= shape[2] <= MAX_HEAD_SIZE or shape[2] % 8:
        raise ValueError(f"{name} must have a head size that is a multiple of 8 up to {MAX_HEAD_SIZE}, not {shape[2]}")
    return shape


def value_dtype(name: str, dtype: torch.dtype) -> None:
    if dtype not in VALUE_DTYPES:
        raise TypeError(f"{name} must be bfloat16, float16 or float32, not {dtype}")


def same(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """A tensor of exactly this shape, dtype and device."""
    _tensor(name, tensor)
    if tensor.shape != shape:
        raise ValueError(f"{name} must have the shape {list(shape)}, not {list(tensor.shape)}")
    if tensor.dtype != dtype:
        raise TypeError(f"{name} must be {dtype}, not {tensor.dtype}")
    on_device(name, tensor, device)


def index(name: str, tensor: torch.Tensor, device: torch.device) -> int:
    """A 1-D int32 or int64 tensor on this device; returns its length."""
    _tensor(name, tensor)
    if tensor.dim() != 1:
        raise ValueError(f"{name} must have one dimension, not {tensor.dim()}")
    if tensor.dtype not in INDEX_DTYPES:
        raise TypeError(f"{name} must be int32 or int64, not {tensor.dtype}")
    on_device(name, tensor, device)
    return tensor.shape[0]


def offsets(name: str, tensor: torch.Tensor, requests: int, device: torch.device) -> None:
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


def memory(name: str, tensor: torch.Tensor) -> Memory:
    """Where a tensor lies, for `apart` and `apart_or_same`."""
    start = tensor.data_ptr()
    return start, start + extent(tensor.shape, tensor.stride()) * tensor.element_size(), name, tensor


def apart(written: Memory, others: Iterable[Memory]) -> None:
    """`written` shares no memory with any of the others."""
    start, end, name, tensor = written
    for at, to, other_name, other in others:
        if at < end and start < to and _overlap(tensor, other):
            raise ValueError(f"{name} must not overlap {other_name}")


def apart_or_same(written: Memory, others: Iterable[Memory]) -> None:
    """`written` is one of the others element for element, or shares no memory with it."""
    start, end, name, tensor = written
    for at, to, other_name, other in others:
        if at < end and start < to and not _same_memory(tensor, other) and _overlap(tensor, other):
            raise ValueError(f"{name} must be exactly {other_name} (same memory, strides and dtype) or not overlap it")


def _tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, not {tensor.layout}")


@functools.lru_cache(maxsize=4096)
def extent(shape: Sizes, strides: Sizes) -> int:
    """Elements from the first to past the last one."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else 0


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and _same_layout(a, b)


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Strides of dimensions of size 1 mean nothing."""
    rows = zip(a.shape, b.shape, a.stride(), b.stride())
    return a.dim() == b.dim() and all(n == m and (n == 1 or s == t) for n, m, s, t in rows)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """For two tensors whose address ranges meet."""
    return bool(a.numel() and b.numel()) and not _interleaved(a, b)


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


@functools.lru_cache(maxsize=4096)
def _injective(shape: Sizes, strides: Sizes) -> bool:
    extent = 1
    for stride, n in _steps(shape, strides):
        if stride < extent:
            return False
        extent += (n - 1) * stride
    return True


def _steps(shape: Sizes, strides: Sizes) -> list[tuple[int, int]]:
    return sorted((s, n) for n, s in zip(shape, strides) if n > 1)
