"""A GPU as vLLM sees it before it computes: its driver answers, and the compiled parts of a release can be imported.

`emulate` stands in for the driver's libraries, for torch's questions to a device, and for compiled modules. All else is the
release's own code: it finds its platform, and its platform chooses. A kernel that is called raises NotImplementedError.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from attnfix.prove import stubs

COUNT = 8  # GPUs of a server


class Device(NamedTuple):
    """`capability` as the driver tells it, memory in GiB; `gcn` the architecture of an AMD GPU."""

    name: str
    capability: tuple[int, int]
    memory: int
    units: int
    gcn: str = ""


DEVICES = {
    "a100": Device("NVIDIA A100-SXM4-80GB", (8, 0), 80, 108),
    "l40s": Device("NVIDIA L40S", (8, 9), 46, 142),
    "h100": Device("NVIDIA H100 80GB HBM3", (9, 0), 80, 132),
    "h200": Device("NVIDIA H200", (9, 0), 141, 132),
    "b200": Device("NVIDIA B200", (10, 0), 180, 148),
    "mi300x": Device("AMD Instinct MI300X", (9, 4), 192, 304, "gfx942"),
}
_COMPILED = (
    "_C", "_C_stable_libtorch", "_moe_C", "_moe_C_stable_libtorch", "_qutlass_C", "_rocm_C", "_flashmla_C",
    "_flashmla_extension_C", "cumem_allocator", "vllm_flash_attn._vllm_fa2_C", "vllm_flash_attn._vllm_fa3_C",
)  # fmt: skip
#: Python of the engine that its wheel has in compiled form, or that comes from other packages
_ABSENT = "vllm.third_party.flash", "vllm.third_party.deep_gemm", "vllm.third_party.fmha", "vllm.vllm_flash_attn."
#: Packages of the images that the releases import where they are found
_PACKAGES = "cutlass", "tilelang", "quack", "humming", "tvm_ffi", "aiter", "ijson"


def load_what_asks_once() -> None:
    """Libraries that ask what torch was built with, and then ask no more; and one that takes seconds to import."""
    for name in ("torch._inductor.compile_fx", "torch.distributed.tensor", "transformers.processing_utils"):
        importlib.import_module(name)
    with suppress(ImportError):
        importlib.import_module("ray")


def emulate(device: Device) -> None:
    """Before vLLM is imported; for good."""
    load_what_asks_once()
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TRITON_INTERPRET"):
        os.environ.pop(name, None)
    _answer(device)
    _let_ops_be_found()
    made = {f"vllm.{name}": dict[str, Any]() for name in _COMPILED}
    made |= (
        {"amdsmi": _amdsmi(device), "aiter": {}, "flash_attn": {"flash_attn_varlen_func": _Op("flash_attn")}}
        if device.gcn
        else {"vllm.third_party.pynvml": _nvml(device)}
    )
    sys.meta_path.insert(0, _Made(made))
    stubs.install("vllm")
    sys.meta_path.append(_Absent(()))


def _answer(device: Device) -> None:
    import torch

    cuda: Any = torch.cuda
    major, minor = device.capability
    properties = types.SimpleNamespace(
        name=device.name, major=major, minor=minor, total_memory=device.memory << 30, is_integrated=False,
        multi_processor_count=device.units, gcnArchName=device.gcn, warp_size=64 if device.gcn else 32,
    )  # fmt: skip
    answers: Mapping[str, Any] = {
        "is_available": True, "device_count": COUNT, "current_device": 0, "_is_compiled": True, "_device_count_nvml": COUNT,
        "_device_count_amdsmi": COUNT, "get_device_capability": device.capability, "get_device_properties": properties,
        "get_device_name": device.name, "mem_get_info": (device.memory << 30, device.memory << 30),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, lambda *args, answer=answer, **kwargs: answer)
    for name in ("empty", "zeros"):  # for workspaces that modules make when they are imported
        setattr(torch, name, _without_device(getattr(torch, name)))
    accelerator: Any = torch.accelerator
    accelerator.device_count, accelerator.is_available = cuda.device_count, cuda.is_available
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    target = GPUTarget("hip", device.gcn, 64) if device.gcn else GPUTarget("cuda", major * 10 + minor, 32)
    driver.set_active(types.SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0))
    version: Any = torch.version
    version.cuda, version.hip = (None, "7.0.0") if device.gcn else ("13.0", None)


def _without_device(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *size, device=None, **kwargs: make(*size, device="meta" if device else None, **kwargs)


def _nvml(device: Device) -> dict[str, Any]:
    class NVMLError(Exception):
        pass

    return {
        "NVMLError": NVMLError, "NVML_P2P_CAPS_INDEX_NVLINK": 0, "NVML_P2P_STATUS_OK": 0,
        "nvmlInit": lambda: None, "nvmlShutdown": lambda: None, "nvmlDeviceGetCount": lambda: COUNT,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: device.capability,
        "nvmlDeviceGetName": lambda handle: device.name,
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=device.memory << 30),
        "nvmlDeviceGetP2PStatus": lambda *args: 0, "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
    }  # fmt: skip


def _amdsmi(device: Device) -> dict[str, Any]:
    return {
        "AmdSmiException": type("AmdSmiException", (Exception,), {}), "AmdSmiMemoryType": types.SimpleNamespace(VRAM=0),
        "amdsmi_init": lambda: None, "amdsmi_shut_down": lambda: None,
        "amdsmi_get_processor_handles": lambda: list(range(COUNT)),
        "amdsmi_get_gpu_asic_info": lambda handle: {
            "target_graphics_version": device.gcn, "device_id": "0x74a1", "market_name": device.name,
        },
        "amdsmi_get_gpu_device_uuid": lambda handle: f"GPU-{handle}",
        "amdsmi_get_gpu_memory_total": lambda handle, kind: device.memory << 30,
        "amdsmi_topo_get_link_type": lambda *handles: {"hops": 1, "type": 2},
        "amdsmi_topo_get_numa_node_number": lambda handle: 0,
    }  # fmt: skip


class _Op:
    """An operator of a compiled module: it says that it supports what it is asked for, and does nothing."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        if "supports" in self.name:
            return True
        raise NotImplementedError(self.name)

    def __getattr__(self, name: str) -> _Op:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Op(f"{self.name}.{name}")


def _let_ops_be_found() -> None:
    import torch._ops
    import torch.library

    spaces: Any = torch._ops._OpNamespace
    own, register = spaces.__getattr__, torch.library.register_fake

    def operator(space: Any, name: str) -> Any:
        try:
            return own(space, name)
        except AttributeError:
            if name.startswith("__") or not space.name.startswith(
                ("_C", "_moe_C", "_rocm_C", "_vllm", "_flashmla", "_qutlass")
            ):
                raise
            return _Op(name)

    def register_fake(op: Any, func: Callable[..., Any] | None = None, /, **kwargs: Any) -> Any:
        if isinstance(op, str) and op.startswith("_"):
            return func or (lambda function: function)
        return register(op, func, **kwargs)

    spaces.__getattr__, torch.library.register_fake = operator, register_fake


class _Made(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules with the given contents."""

    def __init__(self, made: Mapping[str, Mapping[str, Any]]):
        self.made = made

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name in self.made else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        vars(module).update(self.made[spec.name])
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Absent(stubs._Finder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.startswith(_ABSENT) or name.partition(".")[0] in _PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None
