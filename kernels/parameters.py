"""The parameter structs of the kernels, under the names that they have in csrc, and what fills them from tensors."""

from __future__ import annotations

import ctypes
import functools
from ctypes import Structure
from typing import Any

import torch

from . import checks, driver, usage

_U32, _I64, _POINTER = ctypes.c_uint32, ctypes.c_int64, ctypes.c_void_p


class FastDiv(Structure):
    _fields_ = [("divisor", _U32), ("multiplier", _U32), ("shift", _U32)]


def _struct(name: str, **fields: Any) -> type[Structure]:
    return type(name, (Structure,), {"_fields_": list(fields.items())})


def _strides3(s: Any) -> type[Structure]:
    return _struct("Strides3", token=s, head=s, dim=s)


def _lse_strides(s: Any) -> type[Structure]:
    return _struct("LseStrides", token=s, head=s)


def _requests(s: Any) -> type[Structure]:
    return _struct("Requests", kv_lens=_POINTER, cum_seq_lens=_POINTER, kv_stride=s, cum_stride=s, count=_U32, cumulative=_U32)


def _merge_params(name: str, s: Any) -> type[Structure]:
    values, lses = _strides3(s), _lse_strides(s)
    return _struct(
        name,
        output=_POINTER, prefix=_POINTER, suffix=_POINTER, output_lse=_POINTER, prefix_lse=_POINTER, suffix_lse=_POINTER,
        output_stride=values, prefix_stride=values, suffix_stride=values,
        output_lse_stride=lses, prefix_lse_stride=lses, suffix_lse_stride=lses,
        packs=s, tokens_with_context=s, unused=s, per_token=FastDiv, per_head=FastDiv, flags=_U32, unused_too=_U32,
        output_scale=_POINTER, requests=_requests(s),
    )  # fmt: skip


#: Positions in packs are 32 bits wide; those in elements, of the scalar path, 64
PackParams, ScalarParams = _merge_params("PackParams", _U32), _merge_params("ScalarParams", _I64)
FixupParams = _struct(
    "FixupParams",
    out=_POINTER, lse=_POINTER, requests=_requests(_I64), tokens=_I64,
    out_stride=_strides3(_I64), lse_stride=_lse_strides(_I64),
    per_token=FastDiv, per_head=FastDiv, unit=_U32, least_unit=_U32,
)  # fmt: skip
# The kernels assert the same sizes when they are compiled
assert [ctypes.sizeof(params) for params in (FixupParams, PackParams, ScalarParams)] == [136, 192, 272]


@functools.lru_cache(maxsize=1024)
def fast_div(divisor: int) -> tuple[int, int, int]:
    """(divisor, multiplier, shift) of FastDiv: exact for numbers below 2**31."""
    shift = (divisor - 1).bit_length()
    return divisor, -(-(1 << (32 + shift)) // divisor) - (1 << 32), shift


def in_packs(strides: tuple[int, ...], pack: int) -> tuple[int, int, int]:
    """Strides of [tokens, heads, head_size], in elements, as strides of packs of `pack` elements."""
    token, head, dim = strides
    return token // pack, head // pack, dim


def token_head(lse: torch.Tensor | None) -> tuple[int, int]:
    """(token, head) strides of a [heads, tokens] LSE."""
    return (0, 0) if lse is None else (lse.stride(1), lse.stride(0))


def pointer(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def words(index: torch.Tensor) -> int:
    """The stride of an index tensor in 32-bit words, of which the kernels read the low one."""
    return index.stride(0) * (2 if index.dtype == torch.int64 else 1)


def aligned(tensor: torch.Tensor, strides: tuple[int, ...], size: int, width: int) -> bool:
    """Whether every row starts at a multiple of `width` bytes and its elements, of `size` bytes, lie side by side."""
    return strides[2] == 1 and not (tensor.data_ptr() | strides[0] * size | strides[1] * size) % width


def fits_32_bits(tensor: torch.Tensor, pack: int) -> bool:
    """Whether positions in packs are below 2**31, as the vector path computes them; a grid of packs is then, too."""
    return checks.extent(tensor.shape, tensor.stride()) < pack << 31


def loaded_on(device: torch.device, op: str) -> driver.Device | None:
    """The device's loaded kernels; None, counted with its reason, where the torch reference has to serve."""
    if device.type != "cuda":
        usage.count_reference(op, f"the tensors are on {device.type}")
        return None
    try:
        return driver.device(device.index)
    except driver.KernelUnavailable as error:
        usage.count_reference(op, str(error))
        return None
