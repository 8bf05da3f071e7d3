"""What stands for GPU kernels, and for a GPU's answers, while vLLM's objects are constructed on a machine that has none.

A kernel's name is there and can be bound; who calls it gets `OnGpuOnly`, unless a stand-in was put in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

_UNITS = 132  # multiprocessors of an H200
_PROPERTIES = SimpleNamespace(multi_processor_count=_UNITS, major=9, minor=0, total_memory=141 << 30)
_FLASH_ATTENTION = "vllm.vllm_flash_attn"
_BACKEND = "vllm.v1.attention.backends.flash_attn"
_MLA = "vllm.model_executor.layers.attention.mla_attention", "vllm.v1.attention.backends.mla.common"
_FLASHMLA = "vllm.v1.attention.ops.flashmla", "vllm.attention.ops.flashmla"
_ENTRIES = "vllm.v1.attention.backends.fa_utils", "vllm.attention.utils.fa_utils"
_NAMES = (
    "flash_attn_varlen_func", "get_scheduler_metadata", "reshape_and_cache_flash", "compile_flash_attn_varlen_func_from_specs",
    "get_scheduler_metadata_num_splits",
)  # fmt: skip


class OnGpuOnly(NotImplementedError):
    """A kernel was called that a GPU runs, and nobody stands for it."""


def absent(name: str) -> Any:
    def kernel(*args: Any, **kwargs: Any) -> None:
        raise OnGpuOnly(name)

    kernel.__name__ = name
    return kernel


def found(name: str) -> Any:
    """The module, or None where the release has none of that name."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def stand_in() -> None:
    """Give the engine its kernels' names, for good; before a backend's module is imported, which binds them.

    Where another proof has imported that module, or stands for a kernel, what is there stays, and what lacks is added.
    """
    import_module("vllm.platforms")
    flash = ModuleType(_FLASH_ATTENTION)
    flash.__path__ = []
    versions = {"is_fa_version_supported": lambda version: version in (2, 3), "fa_version_unsupported_reason": absent}
    for part in (flash, ModuleType(f"{_FLASH_ATTENTION}.flash_attn_interface")):
        there = vars(sys.modules.setdefault(part.__name__, part))
        for name in _NAMES:
            there.setdefault(name, absent(name))
        there.update(versions)  # the engine's own, imported earlier, says that there is no kernel here
    backend = sys.modules.get(_BACKEND)
    for entry in filter(None, map(found, _ENTRIES)):
        for name in _NAMES:
            vars(entry).setdefault(name, absent(name))
        if backend:  # it did not bind what it takes from here where there is a GPU
            for name in [name for name, value in vars(entry).items() if callable(value)]:
                vars(backend).setdefault(name, vars(entry)[name])
        for name in ("is_flash_attn_varlen_func_available", "flash_attn_supports_mla"):
            if hasattr(entry, name):
                _everywhere(getattr(entry, name), lambda: True)
    for prefill in filter(None, map(sys.modules.get, _MLA)):  # it bound None where it found no kernel, or nothing
        vars(prefill).setdefault(_NAMES[0], None)
        for name in [name for name in _NAMES if vars(prefill).get(name, absent) is None]:
            setattr(prefill, name, absent(name))
    for ops in filter(None, map(found, _FLASHMLA)):
        for name in [name for name in vars(ops) if name.startswith("is_flashmla")]:
            _everywhere(getattr(ops, name), lambda: (True, None))
    utils = found("vllm.utils.flashinfer")
    if hasattr(utils, "has_nvidia_artifactory"):  # asks NVIDIA's server
        utils.has_nvidia_artifactory = lambda: False
    sizes = import_module("flashinfer.utils")  # from 0.33
    for name, size in (("get_device_sm_count", _UNITS), ("get_trtllm_gen_multi_ctas_kv_counter_bytes", 1 << 10)):
        _everywhere(getattr(sizes, name), lambda *shape, size=size: size)


def _everywhere(function: Any, other: Any) -> None:
    """Bind every name of the engine's and FlashInfer's modules that holds `function` to `other`."""
    for module in [module for name, module in list(sys.modules.items()) if name.startswith(("vllm.", "flashinfer."))]:
        for name in [name for name, value in vars(module).items() if value is function]:
            setattr(module, name, other)


@contextmanager
def on_cpu() -> Iterator[None]:
    """Inside, torch makes ordinary memory where pinned memory or a GPU's is asked for."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.pin_memory:
                return args[0]
            if not kwargs:
                return function(*args)
            kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
            if str(kwargs.get("device", "")).startswith("cuda"):
                kwargs["device"] = "cpu"
            return function(*args, **kwargs)

    cuda: Any = torch.cuda
    former, cuda.get_device_properties = cuda.get_device_properties, lambda device=None: _PROPERTIES
    try:
        with OnCpu():
            yield
    finally:
        torch.cuda.get_device_properties = former


def gpu_answers(capability: tuple[int, int] | None) -> dict[str, Any]:
    """Methods of the platform that a constructor asks, for a GPU of that compute capability."""
    platform: Any = import_module("vllm.platforms.interface")
    answer = None if capability is None else platform.DeviceCapability(*capability)
    return {
        "get_device_capability": classmethod(lambda cls, device_id=0: answer),
        "num_compute_units": classmethod(lambda cls, device_id=0: _UNITS),
        "is_async_output_supported": classmethod(lambda cls, enforce_eager=None: True),  # 0.10 asks
        "is_pin_memory_available": classmethod(lambda cls: False),
        "get_device_name": classmethod(lambda cls, device_id=0: "none"),
        "support_hybrid_kv_cache": classmethod(lambda cls: True),
    }


@cache
def _on_gpu() -> type:
    import torch

    class OnGpu(torch.Tensor):
        """As a GPU's: what is asked for on the host is a copy."""

        def cpu(self, *args: Any, **kwargs: Any) -> Any:
            return self.as_subclass(torch.Tensor).clone()

        def to(self, *args: Any, **kwargs: Any) -> Any:
            return self.cpu() if "cpu" in map(str, (*args, *kwargs.values())) else super().to(*args, **kwargs)

    return OnGpu


def on_gpu(tensor: Any) -> Any:
    """A copy of `tensor` that shares no memory with what the engine copies to the host."""
    return tensor.clone().as_subclass(_on_gpu())
