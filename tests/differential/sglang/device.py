"""A CUDA device whose memory is the CPU's, as far as sglang's host code asks for one.

The engine says "cuda" and gets tensors of the CPU; streams and events are there and do nothing, because work is done when it is
asked for. Nothing says that CUDA is available: where the engine looks, it takes its own path for a machine without.

A CUDA graph is what ran while it was captured, run again over the same memory: operators of torch below autograd, Triton
kernels in their interpreter, and `kernels`' stand-ins. As in a real graph, host code does not run again, and a number that a
kernel was handed at capture stays what it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .. import rounding

_CAPABILITY = (9, 0)
_MEMORY = 64 << 30
_capturing: list[Graph] = []


class OnCpu(TorchFunctionMode):
    """Make tensors on the CPU where the engine's code says "cuda", and pin none."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if not kwargs and not any(type(one) is str or type(one) is torch.device for one in args):
            return function(*args)
        kwargs = {name: _here(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        return function(*map(_here, args), **kwargs)


def _here(value: Any) -> Any:
    if type(value) is str:
        return "cpu" if value == "cuda" or value.startswith("cuda:") else value
    return torch.device("cpu") if type(value) is torch.device and value.type == "cuda" else value


class Stream:
    cuda_stream = stream_id = device_index = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any):
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def wait_stream(self, *_: Any) -> None:
        pass

    wait_event = synchronize = wait_stream

    def record_event(self, event: Any = None) -> Event:
        return event or Event()

    def query(self) -> bool:
        return True


class Event:
    def __init__(self, *_: Any, **__: Any):
        pass

    def record(self, *_: Any, **__: Any) -> None:
        pass

    wait = synchronize = record

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0


class _Recorded(TorchDispatchMode):
    def __init__(self, graph: Graph):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if not function.__name__.startswith(("empty", "new_empty")):
            mutates = function._schema.is_mutable
            given = {_address(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
            made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor) and _address(one) not in given]
            if mutates or made:
                self.graph.work.append((functools.partial(function, *args, **kwargs), result))
        return result


def _address(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr()


class Graph:
    """In the place of `torch.cuda.CUDAGraph`."""

    def __init__(self, *_: Any, **__: Any):
        self.work: list[tuple[Callable[[], Any], Any]] = []

    def replay(self) -> None:
        for work, result in self.work:
            for old, new in zip(tree_leaves(result), tree_leaves(work())):
                if isinstance(old, torch.Tensor) and _address(old) != _address(new):
                    old.copy_(new)

    def pool(self) -> tuple[int, int]:
        return (0, 0)

    def reset(self) -> None:
        self.work.clear()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


@contextmanager
def _captured(cuda_graph: Graph, *_: Any, **__: Any) -> Iterator[None]:
    _capturing.append(cuda_graph)
    try:
        with _Recorded(cuda_graph):
            yield
    finally:
        _capturing.pop()


def launched(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel`, which a graph that is captured holds as one piece of work."""

    @functools.wraps(kernel)
    def launch(*args: Any, **kwargs: Any) -> Any:
        if not _capturing:
            return kernel(*args, **kwargs)
        graph = _capturing[-1]
        with unrecorded():
            result = kernel(*args, **kwargs)
        graph.work.append((functools.partial(kernel, *args, **kwargs), result))
        return result

    return launch


def act(work: Callable[[], None]) -> None:
    """Do something that is no work of the device's, in its place among that: now, or in each replay of a captured graph."""
    if _capturing:
        _capturing[-1].work.append((work, None))
    else:
        work()


@contextmanager
def unrecorded() -> Iterator[None]:
    """What is done in here is no part of the graph that is captured."""
    from torch.utils._python_dispatch import _disable_current_modes

    former, _capturing[:] = list(_capturing), []
    try:
        with _disable_current_modes():
            yield
    finally:
        _capturing[:] = former


def install() -> None:
    """Once, before the engine is imported."""
    from triton.runtime import interpreter

    cuda, properties = torch.cuda, _Properties()
    same = {
        "Stream": Stream, "ExternalStream": Stream, "Event": Event, "CUDAGraph": Graph, "graph": _captured,
        "stream": lambda *_, **__: nullcontext(), "StreamContext": lambda *_, **__: nullcontext(),
        "device": lambda *_, **__: nullcontext(), "current_stream": lambda *_: _STREAM, "default_stream": lambda *_: _STREAM,
        "set_stream": _nothing(), "set_device": _nothing(), "synchronize": _nothing(), "empty_cache": _nothing(),
        "reset_peak_memory_stats": _nothing(), "current_device": lambda: 0, "device_count": lambda: 1,
        "mem_get_info": lambda *_: (_MEMORY, _MEMORY), "memory_allocated": lambda *_: 0, "memory_reserved": lambda *_: 0,
        "get_device_name": lambda *_: properties.name, "get_device_capability": lambda *_: _CAPABILITY,
        "get_device_properties": lambda *_: properties, "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: bool(_capturing), "memory_stats": lambda *_: _Zeros(),
        "max_memory_allocated": lambda *_: 0, "max_memory_reserved": lambda *_: 0,
    }  # fmt: skip
    for name, value in same.items():
        setattr(cuda, name, value)
    torch.Tensor.record_stream = _nothing()  # torch looks at the type of the stream before any mode is asked
    torch.compile = lambda function=None, **_: function or (lambda decorated: decorated)
    torch.get_device_module = lambda *_: cuda
    rounding.install()
    interpreter.GridExecutor.__call__ = launched(interpreter.GridExecutor.__call__)
    groups = torch.distributed
    for name in ("init_process_group", "new_group"):
        setattr(groups, name, _over_gloo(getattr(groups, name)))


def _over_gloo(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        if kwargs.get("backend"):
            kwargs["backend"] = "gloo"
        return make(*args, **kwargs)

    return made


@dataclass(frozen=True)
class _Properties:
    name: str = "NVIDIA H200"
    major: int = _CAPABILITY[0]
    minor: int = _CAPABILITY[1]
    total_memory: int = _MEMORY
    multi_processor_count: int = 132
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    shared_memory_per_block_optin: int = 232448
    L2_cache_size: int = 50 << 20
    is_integrated: bool = False


class _Zeros(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return 0


def _nothing() -> Callable[..., None]:
    """A function that does nothing: torch's compiler wants one of its own for each name."""
    return lambda *_, **__: None


_STREAM = Stream()
