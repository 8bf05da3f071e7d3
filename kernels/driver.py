"""Loads the compiled kernels with the CUDA driver API and launches them, by ctypes: no build against any torch.

Nothing here touches the driver before the first launch, and then only when torch has initialised CUDA in this very
process: a `cuInit` of our own would break every later fork. One library handle serves all contexts.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

COMPILED = Path(__file__).resolve().parent / "compiled"

_INVALID_CONTEXT = 201  # this thread has no context yet
_CAPTURE_MODE_RELAXED = 2
_SM_COUNT, _CC_MAJOR, _CC_MINOR = 16, 75, 76
# CUlaunchConfig: grid, block, shared memory, (padding,) stream, attributes and their number.
_CONFIG, _STREAM_AT, _pack_stream = struct.Struct("<7I 4x QQ I 4x"), 32, struct.Struct("<Q").pack_into


class CudaError(RuntimeError):
    """A CUDA driver call failed; names the call, the error and what it means."""


class KernelUnavailable(RuntimeError):
    """No compiled kernel can run on this device in this process; the text is the reason."""


class Device:
    """The kernels loaded for one CUDA device."""

    def __init__(self, index: int, context: int, sm_count: int, built_for: int, functions: dict[str, int]) -> None:
        self.index = index
        self.context = context
        self.sm_count = sm_count
        self.built_for = built_for  # the compute capability that the code was compiled for: 90 for 9.0
        self.functions = functions


class Launch:
    """A launch of `entry` with one struct argument. For one thread at a time: it owns that argument.

    The first `pointers` values of `params` are addresses, which each call replaces. A call launches on torch's current stream
    of the device: it allocates nothing, waits for nothing and may be captured in a graph. Raises CudaError.
    """

    __slots__ = ("_argument", "_config", "_entry", "_launch", "_on", "_pack", "_pointer")

    def __init__(self, on: Device, entry: str, grid: int, block: int, params: ctypes.Structure, pointers: int) -> None:
        self._on, self._entry, self._argument = on, entry, params
        self._pack = struct.Struct(f"<{pointers}Q").pack_into
        self._config = ctypes.create_string_buffer(_CONFIG.pack(grid, 1, 1, block, 1, 1, 0, 0, 0, 0), _CONFIG.size)
        self._pointer = (ctypes.c_void_p * 1)(ctypes.addressof(self._argument))
        # As ctypes objects: numbers would be converted at every call.
        addresses = ctypes.addressof(self._config), on.functions[entry], ctypes.addressof(self._pointer), None
        self._launch = partial(_cuda.cuLaunchKernelEx, *(ctypes.c_void_p(address) for address in addresses))

    def __call__(self, addresses: tuple[int, ...]) -> None:
        index = self._on.index
        self._pack(self._argument, 0, *addresses)
        _pack_stream(self._config, _STREAM_AT, _current_stream(index))
        if _current_device() != index:
            with _entered(self._on.context):
                code = self._launch()
        else:
            code = self._launch()
            if code == _INVALID_CONTEXT:
                # A new thread has no context until its first runtime call; give it the one that call would bind.
                _check(_cuda.cuCtxSetCurrent(self._on.context), "cuCtxSetCurrent")
                code = self._launch()
        if code:
            _check(code, f"cuLaunchKernelEx({self._entry})")


def device(index: int) -> Device:
    """The loaded kernels of CUDA device `index`. Raises KernelUnavailable, the same way each time once remembered."""
    found = _devices.get(index)
    return found if found is not None else _open(index)


def _start() -> None:
    # Also in a forked child, where CUDA handles of the parent mean nothing and its locks may be held for ever.
    global _lock, _devices, _unavailable, _libraries, _cuda, _current_stream, _current_device, _pid
    _lock = threading.Lock()
    _devices = {}
    _unavailable = {}
    _libraries = {}
    _cuda = _current_stream = _current_device = None
    _pid = os.getpid()


_lock: threading.Lock
_devices: dict[int, Device]
_unavailable: dict[int, str]
_libraries: dict[Path, ctypes.c_void_p]
# None until `_bind`, which comes before every use of them: `| Any` says so to type checkers without a test at each launch.
_cuda: ctypes.CDLL | Any
_current_stream: Callable[[int], int] | Any
_current_device: Callable[[], int] | Any
_pid: int
_start()
os.register_at_fork(after_in_child=_start)


def _open(index: int) -> Device:
    import torch

    if _pid != os.getpid() or not torch.cuda.is_initialized():
        # Not remembered: CUDA may be initialised later.
        raise KernelUnavailable("torch has not initialised CUDA in this process")
    with _lock:
        if index in _unavailable:
            raise KernelUnavailable(_unavailable[index])
        if index not in _devices:
            try:
                _bind(torch)
                _devices[index] = _load_device(index)
            except (CudaError, KernelUnavailable, OSError, ValueError, KeyError, AttributeError) as error:
                _unavailable[index] = f"{type(error).__name__}: {error}" if not str(error) else str(error)
                raise KernelUnavailable(_unavailable[index]) from error
        return _devices[index]


def _bind(torch: Any) -> None:
    global _cuda, _current_stream, _current_device
    if _cuda is not None:
        return
    if torch.version.hip:
        raise KernelUnavailable("this torch is built for ROCm")
    cuda = ctypes.CDLL("libcuda.so.1")
    if not hasattr(cuda, "cuLibraryLoadData"):
        raise KernelUnavailable("the CUDA driver is older than 12.0 (it has no cuLibraryLoadData)")
    cuda.cuCtxSetCurrent.argtypes = cuda.cuCtxPushCurrent_v2.argtypes = [ctypes.c_void_p]
    # The raw calls cost 0.1 µs where the public ones build a Stream object; both are there since torch 1.13.
    raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    _current_stream = raw_stream or (lambda index: torch.cuda.current_stream(index).cuda_stream)
    _current_device = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device
    _cuda = cuda


def _load_device(index: int) -> Device:
    cu_device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(_cuda.cuDeviceGet(ctypes.byref(cu_device), index), "cuDeviceGet")
    # The context torch uses. Kept for the life of the process, as torch itself keeps it.
    _check(_cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), cu_device), "cuDevicePrimaryCtxRetain")
    sms, major, minor = (_attribute(cu_device, a) for a in (_SM_COUNT, _CC_MAJOR, _CC_MINOR))
    target, images = _images(major, minor)
    with _entered(_address(context)), _capture_allowed():
        functions: dict[str, int] = {}
        for path, entries in images:
            library = _load_library(path)
            for entry in entries:
                kernel, function = ctypes.c_void_p(), ctypes.c_void_p()
                _check(_cuda.cuLibraryGetKernel(ctypes.byref(kernel), library, entry.encode()), "cuLibraryGetKernel")
                # Loads the code into this context now: lazy loading at the first launch may synchronise, and an image
                # that cannot run here shows itself while the reference can still take over.
                _check(_cuda.cuKernelGetFunction(ctypes.byref(function), kernel), f"cuKernelGetFunction({entry})")
                if hasattr(_cuda, "cuFuncLoad"):  # driver 12.4+
                    _check(_cuda.cuFuncLoad(function), f"cuFuncLoad({entry})")
                functions[entry] = _address(kernel)  # a CUkernel may stand for a CUfunction; it fits every context
    return Device(index, _address(context), sms, int(target.partition("_")[2]), functions)


def _images(major: int, minor: int) -> tuple[str, list[tuple[Path, list[str]]]]:
    """What is loaded for one compute capability: the target, and the image file and the entry points of every kernel."""
    try:
        manifest = json.loads((COMPILED / "manifest.json").read_text())
    except FileNotFoundError:
        raise KernelUnavailable(f"no compiled kernels in {COMPILED}: build them with kernels/build.py") from None
    target = choose_target(major, minor, manifest["arches"], manifest["ptx"])
    kernels = manifest["kernels"].values()
    return target, [(COMPILED / kernel["files"][target], kernel["entry_points"]) for kernel in kernels]


def choose_target(major: int, minor: int, arches: list[str], ptx: str | None) -> str:
    """The image for a compute capability: a cubin runs on its own and later minor versions of its major one.

    Anything else takes the PTX, if that is not for something later. Raises KernelUnavailable when nothing fits.
    """
    here = major * 10 + minor
    fitting = [n for n in (int(a.removeprefix("sm_")) for a in arches) if n // 10 == major and n <= here]
    if fitting:
        return f"sm_{max(fitting)}"
    if ptx and int(ptx.removeprefix("compute_")) <= here:
        return ptx
    there = ", ".join([*arches, *([ptx] if ptx else [])])
    raise KernelUnavailable(f"no kernels for compute capability {major}.{minor} (there are: {there})")


def _load_library(path: Path) -> ctypes.c_void_p:
    if path not in _libraries:
        library = ctypes.c_void_p()
        image = ctypes.create_string_buffer(path.read_bytes())  # PTX needs the NUL it adds
        code = _cuda.cuLibraryLoadData(ctypes.byref(library), image, None, None, 0, None, None, 0)
        _check(code, f"cuLibraryLoadData({path.name})")
        _libraries[path] = library
    return _libraries[path]


def _address(handle: ctypes.c_void_p) -> int:
    """A handle as a number: ctypes reads NULL as None."""
    return handle.value or 0


def _attribute(cu_device: ctypes.c_int, attribute: int) -> int:
    value = ctypes.c_int()
    _check(_cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, cu_device), "cuDeviceGetAttribute")
    return value.value


@contextlib.contextmanager
def _entered(context: int) -> Iterator[None]:
    _check(_cuda.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent")
    try:
        yield
    finally:
        _check(_cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())), "cuCtxPopCurrent")


@contextlib.contextmanager
def _capture_allowed() -> Iterator[None]:
    """Lets this thread load code while a stream is being captured; without it the capture would be invalidated."""
    mode = ctypes.c_int(_CAPTURE_MODE_RELAXED)
    _check(_cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)), "cuThreadExchangeStreamCaptureMode")
    try:
        yield
    finally:
        code = _cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        _check(code, "cuThreadExchangeStreamCaptureMode")


def _check(code: int, call: str) -> None:
    if code == 0:
        return
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    _cuda.cuGetErrorName(code, ctypes.byref(name))
    _cuda.cuGetErrorString(code, ctypes.byref(text))
    known = [part.value.decode() for part in (name, text) if part.value]
    raise CudaError(f"{call} failed with error {code}{': ' if known else ''}{', '.join(known)}")
