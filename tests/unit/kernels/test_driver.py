"""The launcher's logic without a GPU: a stand-in for libcuda records the calls and returns what a test wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnfix.kernels import driver
from tests.robustness import fake_cuda
from tests.robustness.fake_cuda import FakeCuda, Pair

INVALID_CONTEXT, NO_BINARY = 201, 209


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCuda:
    yield fake_cuda.install(tmp_path, monkeypatch.setattr)
    driver._start()


def launch(device: driver.Device, *values: int) -> None:
    driver.Launch(device, "k_a", 3, 256, Pair(*values), 1)((values[0],))


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
    assert cuda.arguments == [bytes(Pair(5, -6))]
    assert cuda.configs == [(3, 1, 1, 256, 1, 1, 0, 7, 0, 0)]


def test_a_launch_can_be_repeated_with_other_arguments_on_another_stream(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = driver.Launch(driver.device(0), "k_a", 3, 256, Pair(5, -6), 1)
    again((5,))
    monkeypatch.setattr(driver, "_current_stream", lambda index: 8)
    again((7,))
    assert cuda.arguments == [bytes(Pair(5, -6)), bytes(Pair(7, -6))]
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
