"""A stand-in for libcuda that records the calls and returns what a test wants."""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable
from pathlib import Path


class Pair(ctypes.Structure):
    """What the one kernel takes."""

    _fields_ = [("pointer", ctypes.c_int64), ("value", ctypes.c_int64)]


CONFIG = "@7IQQI"  # CUlaunchConfig: grid, block, shared memory, stream, attributes and their number


class FakeCuda:
    """Answers every driver call with 0, or with the next of the codes set for its name."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.codes: dict[str, list[int]] = {}
        self.arguments: list[bytes] = []
        self.configs: list[tuple[int, ...]] = []
        self.modes: list[int] = []
        self._functions: dict[str, _Function] = {}

    def __getattr__(self, name: str) -> _Function:
        if name.startswith("cu"):
            return self._functions.setdefault(name, _Function(self, name))
        raise AttributeError(name)


class _Function:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def __call__(self, *args):
        cuda, name = self.cuda, self.name
        cuda.calls.append(name)
        code = cuda.codes[name].pop(0) if cuda.codes.get(name) else 0
        if name == "cuDeviceGetAttribute":
            args[0]._obj.value = {16: 132, 75: 9, 76: 0}[args[1]]
        elif name == "cuDevicePrimaryCtxRetain":
            args[0]._obj.value = 4711
        elif name == "cuLibraryGetKernel":
            args[0]._obj.value = 100 + len(cuda.calls)
        elif name == "cuThreadExchangeStreamCaptureMode":
            cuda.modes.append(args[0]._obj.value)
            args[0]._obj.value = 0
        elif name in ("cuGetErrorName", "cuGetErrorString"):
            args[1]._obj.value = b"CUDA_ERROR_TEST" if name.endswith("Name") else b"made up"
        elif name == "cuLaunchKernelEx" and not code:
            cuda.configs.append(struct.unpack(CONFIG, ctypes.string_at(args[0], struct.calcsize(CONFIG))))
            pointer = ctypes.cast(args[2], ctypes.POINTER(ctypes.c_void_p))[0]
            cuda.arguments.append(ctypes.string_at(pointer, ctypes.sizeof(Pair)))
        return code


def install(folder: Path, setattr: Callable[..., None]) -> FakeCuda:
    """An initialised CUDA with one sm_90 device and one compiled kernel, for `attnfix.kernels.driver`."""
    import torch

    from attnfix.kernels import driver

    fake = FakeCuda()
    files = {"sm_90": "k.sm_90.cubin"}
    manifest = {"arches": ["sm_90"], "ptx": None, "kernels": {"k": {"entry_points": ["k_a"], "files": files}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "k.sm_90.cubin").write_bytes(b"code")
    setattr(driver, "COMPILED", folder)
    setattr(driver.ctypes, "CDLL", lambda name: fake)
    setattr(torch.cuda, "is_initialized", lambda: True)
    setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 7, raising=False)
    setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    driver._start()
    return fake
