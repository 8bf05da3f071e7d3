"""Adapters of LoRA, as far as the engine has them without their weights: which adapter each row of the model gets.

Real: the config, the manager of a worker with its slots, the order in which it frees them, the layer that holds them, the
runner's mapping of rows to adapters, and the kernels' metadata that the engine makes of it. Emulated: a checkpoint, whose
weights are the adapter's number, and the kernels, which read that number row by row (`of_rows`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from importlib import import_module
from inspect import signature
from typing import Any

import torch

from attnfix.patches.lab.vllm.kernels import found

from . import gpu

_RANK, _SIZE, _LAYER = 8, 8, "adapted"
_WRAPPER = "vllm.lora.punica_wrapper.punica_gpu.PunicaWrapperGPU"


class Cache(MutableMapping):  # type: ignore[type-arg]
    """As much of the package cachetools as the engine's manager of adapters uses, where that is not installed."""

    def __init__(self, maxsize: float, getsizeof: Any = None):
        self.maxsize = maxsize
        self.__data: dict[Any, Any] = {}

    currsize = property(len)

    def __getitem__(self, key: Any) -> Any:
        return self.__data[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        while key not in self.__data and len(self.__data) >= self.maxsize:
            self.popitem()
        self.__data[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.__data[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.__data

    def __iter__(self) -> Any:
        return iter(self.__data)

    def __len__(self) -> int:
        return len(self.__data)


class LRUCache(Cache):
    """The least recently used item is the first to go."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.__order: OrderedDict[Any, None] = OrderedDict()

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        self.__order.move_to_end(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.__order[key] = None
        self.__order.move_to_end(key)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        del self.__order[key]


def before_the_engine() -> None:
    """To be called before the engine is imported: a stub is no base of a cache that works."""
    package: Any = import_module("cachetools")
    if not hasattr(package, "__file__"):
        package.LRUCache = LRUCache


def stand_in() -> None:
    """For good, in this process: an adapter is made instead of loaded."""
    manager: Any = import_module("vllm.lora.worker_manager").WorkerLoRAManager
    manager._load_adapter = lambda self, request: _loaded(request.lora_int_id, self.lora_config.lora_dtype)
    platform = type(import_module("vllm.platforms").current_platform)
    platform.get_punica_wrapper = classmethod(lambda cls: _WRAPPER)
    import_module(_WRAPPER.rpartition(".")[0])


def _loaded(number: int, dtype: Any) -> Any:
    home: Any = found("vllm.lora.lora_model") or import_module("vllm.lora.models")
    weights: Any = found("vllm.lora.lora_weights") or import_module("vllm.lora.lora")
    a = torch.full((_RANK, _SIZE), number, dtype=dtype)
    layer = weights.LoRALayerWeights(_LAYER, _RANK, _RANK, a, torch.zeros(_SIZE, _RANK, dtype=dtype))
    return home.LoRAModel(number, _RANK, {_LAYER: layer})


def config(given: dict[str, Any]) -> dict[str, Any]:
    """What the engine's config has of adapters, by its name there."""
    if not given["adapters"]:
        return {}
    cls: Any = import_module("vllm.config").LoRAConfig
    more = {"specialize_active_lora": True} if given["specialize-active-lora"] else {}
    if missing := {*more, "target_modules"} - set(signature(cls).parameters):
        raise TypeError(f"this release has no {', '.join(sorted(missing))}")
    return {"lora_config": cls(max_loras=given["max-loras"], max_lora_rank=_RANK, target_modules=[_LAYER], **more)}


def request(number: int) -> Any:
    """What names the adapter; None for the model alone."""
    if not number:
        return None
    return import_module("vllm.lora.request").LoRARequest(f"adapter-{number}", number, f"/adapters/{number}")


def traits() -> dict[str, Any]:
    """What the engine asks of the class of a model that takes adapters."""
    interface: Any = import_module("vllm.model_executor.models.interfaces").SupportsLoRA
    said = {name: getattr(interface, name) for name in interface.__annotations__ if hasattr(interface, name)}
    return {**said, "packed_modules_mapping": {}, "embedding_modules": {}, "lora_manager": None}


def layer(worker: Any) -> Any:
    """The layer of a model that its adapters change, by the engine's constructor."""
    linear: Any = import_module("vllm.model_executor.layers.linear").ReplicatedLinear
    return worker._in_dtype(linear, _SIZE, _SIZE, bias=False, prefix=_LAYER)


def of_rows(model: Any, count: int) -> Any:
    """The adapter of each row, as the engine's kernels find its weights: each slot that has rows is one part of the launch.

    Numbers on the host are those of capture in a CUDA graph: whether anything is launched, and how many parts.
    """
    found_ = torch.zeros(count, dtype=torch.long)
    if (adapted := getattr(model, _LAYER, None)) is None:
        return found_
    wrapper = adapted.punica_wrapper
    more = [wrapper.lora_config.specialize_active_lora] if hasattr(wrapper.lora_config, "specialize_active_lora") else []
    _, order, sizes, starts, slots, nothing, parts = wrapper.token_mapping_meta.meta_args(count, *more)
    nothing, parts = gpu.CUDAGraph.of_capture((bool(nothing), int(parts)))
    (weights,) = adapted.lora_a_stacked
    for part in range(0 if nothing else parts):
        if (slot := int(slots[part])) >= 0:
            rows = order[int(starts[part]) : int(starts[part]) + int(sizes[part])].long()
            found_[rows] = int(weights[slot, 0, 0, 0])
    return found_
