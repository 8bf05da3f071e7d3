"""The launcher's logic without a GPU: a stand-in for libcuda records the calls and returns what a test wants."""

from __future__ import annotations

import ctypes
import json
import struct
from pathlib import Path

import pytest
import torch

from attnfix.kernels import driver

INVALID_CONTEXT, NO_BINARY = 201, 209
PAIR = struct.Struct("<2q")
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
            cuda.arguments.append(ctypes.string_at(pointer, PAIR.size))
        return code


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCuda:
    """An initialised CUDA with one sm_90 device and one compiled kernel."""
    fake = FakeCuda()
    files = {"sm_90": "k.sm_90.cubin"}
    manifest = {"arches": ["sm_90"], "ptx": None, "kernels": {"k": {"entry_points": ["k_a"], "files": files}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "k.sm_90.cubin").write_bytes(b"code")
    monkeypatch.setattr(driver, "COMPILED", tmp_path)
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: fake)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 7, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    driver._start()
    yield fake
    driver._start()


def launch(device: driver.Device, *values: int) -> None:
    driver.Launch(device, "k_a", 3, 256, PAIR, 1, *values)((values[0],))


def test_loads_once_and_in_relaxed_capture_mode(cuda: FakeCuda) -> None:
    device = driver.device(0)
    assert driver.device(0) is device and device.sm_count == 132
    assert cuda.calls.count("cuLibraryLoadData") == 1
    assert cuda.modes == [2, 0]  # relaxed while loading, then what it was
    assert cuda.calls.index("cuCtxPushCurrent_v2") < cuda.calls.index("cuLibraryLoadData")
    assert cuda.calls[-1] == "cuCtxPopCurrent_v2"


def test_arguments_reach_the_driver(cuda: FakeCuda) -> None:
    device = driver.device(0)
    launch(device, 5, -6)
    assert cuda.arguments == [PAIR.pack(5, -6)]
    assert cuda.configs == [(3, 1, 1, 256, 1, 1, 0, 7, 0, 0)]


def test_a_launch_can_be_repeated_with_other_arguments_on_another_stream(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = driver.Launch(driver.device(0), "k_a", 3, 256, PAIR, 1, 5, -6)
    again((5,))
    monkeypatch.setattr(driver, "_current_stream", lambda index: 8)
    again((7,))
    assert cuda.arguments == [PAIR.pack(5, -6), PAIR.pack(7, -6)]
    assert [config[7] for config in cuda.configs] == [7, 8]


def test_a_thread_without_a_context_gets_one_and_retries_once(cuda: FakeCuda) -> None:
    device = driver.device(0)
    cuda.codes["cuLaunchKernelEx"] = [INVALID_CONTEXT]
    cuda.calls.clear()
    launch(device, 1, 2)
    assert cuda.calls == ["cuLaunchKernelEx", "cuCtxSetCurrent", "cuLaunchKernelEx"]
    cuda.codes["cuLaunchKernelEx"] = [INVALID_CONTEXT, INVALID_CONTEXT]
    with pytest.raises(driver.CudaError, match=r"cuLaunchKernelEx\(k_a\) failed with error 201: CUDA_ERROR_TEST, made up"):
        launch(device, 1, 2)


def test_another_current_device_is_left_as_it_was(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    device = driver.device(0)
    monkeypatch.setattr(driver, "_current_device", lambda: 1)
    cuda.calls.clear()
    launch(device, 1, 2)
    assert cuda.calls == ["cuCtxPushCurrent_v2", "cuLaunchKernelEx", "cuCtxPopCurrent_v2"]


def test_any_other_error_is_raised_at_once(cuda: FakeCuda) -> None:
    device = driver.device(0)
    cuda.codes["cuLaunchKernelEx"] = [1]
    cuda.calls.clear()
    with pytest.raises(driver.CudaError):
        launch(device, 1, 2)
    assert cuda.calls.count("cuLaunchKernelEx") == 1 and "cuCtxSetCurrent" not in cuda.calls


@pytest.mark.parametrize("call", ["cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuFuncLoad"])
def test_an_image_that_cannot_load_is_remembered(cuda: FakeCuda, call: str) -> None:
    cuda.codes[call] = [NO_BINARY]
    for _ in range(2):
        with pytest.raises(driver.KernelUnavailable, match=f"{call}.* failed with error 209"):
            driver.device(0)
    assert cuda.calls.count(call) == 1
    assert cuda.modes == [2, 0] and cuda.calls.count("cuCtxPopCurrent_v2") == 1


def test_an_old_driver_is_named(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: object())
    with pytest.raises(driver.KernelUnavailable, match=r"older than 12\.0"):
        driver.device(0)
