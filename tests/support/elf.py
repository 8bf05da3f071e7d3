"""Just enough of ELF64 to look into a cubin: its machine, its architecture and the kernels it defines."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

EM_CUDA = 190
_SHT_SYMTAB = 2
_STT_FUNC, _STB_GLOBAL = 2, 1


@dataclass(frozen=True)
class Cubin:
    machine: int
    arch: int  # 90 for sm_90
    kernels: tuple[str, ...]  # defined global functions, sorted


def read_cubin(path: Path) -> Cubin:
    """Raises ValueError for anything but a little-endian ELF64 file."""
    data = Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no little-endian ELF64 file")
    machine, flags = struct.unpack_from("<H", data, 18)[0], struct.unpack_from("<I", data, 48)[0]
    at = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    # name, type, flags, address, offset, size, link, info, alignment, entry size
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    kernels = set()
    for section in sections:
        if section[1] != _SHT_SYMTAB:
            continue
        names = sections[section[6]][4]
        for symbol in range(section[4], section[4] + section[5], section[9]):
            name, info, _, index = struct.unpack_from("<IBBH", data, symbol)
            if info & 15 == _STT_FUNC and info >> 4 == _STB_GLOBAL and index:
                kernels.add(data[names + name : data.index(b"\0", names + name)].decode())
    # CUDA 12 keeps the architecture in the low byte (ABI 7); later ABIs move it one byte up.
    abi = data[8]
    return Cubin(machine, flags & 0xFF if abi < 8 else flags >> 8 & 0xFF, tuple(sorted(kernels)))
