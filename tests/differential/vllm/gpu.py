"""A GPU as far as vLLM's model runner asks for one, on a machine that has none.

Streams and events do nothing: everything runs in order. Memory that is mapped into the GPU is the memory itself; what is asked
for on the host is a copy, and may be written over. A CUDA graph runs its launches once more at every replay: numbers are those
of capture, tensors hold what lies at their addresses then.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

import torch

from attnfix.patches.lab.interpreter import take_any_mask
from attnfix.patches.lab.vllm import kernels


class Event:
    def __init__(self, *args: Any, **kwargs: Any): ...

    def record(self, *args: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait(self, *args: Any) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 1.0


class Stream(Event):
    device, cuda_stream = torch.device("cpu"), 0

    def wait_stream(self, other: Any) -> None: ...

    def wait_event(self, other: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None: ...


class CUDAGraph:
    replays = 0  # of all
    _here = threading.local()  # graph: that is captured or replayed now; a rank has a thread of its own

    def __init__(self, *args: Any, **kwargs: Any):
        self._numbers: list[Any] = []
        self._left: list[Any] | None = None  # of a replay

    def replay(self) -> None:
        CUDAGraph.replays += 1
        self._left = list(self._numbers)
        with self.running():
            self.launches()  # type: ignore[attr-defined]
        self._left = None

    @contextmanager
    def running(self) -> Any:
        self._here.graph = self
        try:
            yield
        finally:
            self._here.graph = None

    @classmethod
    def of_capture(cls, numbers: Any) -> Any:
        """What a stand-in has read on the host: in a replay, what it read in the same place of the capture."""
        if (graph := getattr(cls._here, "graph", None)) is None:
            return numbers
        if graph._left is not None:
            return graph._left.pop(0)
        graph._numbers.append(numbers)
        return numbers

    def reset(self) -> None: ...


@contextmanager
def _graph(graph: CUDAGraph, *pool: Any, **more: Any) -> Any:
    """Capture: what the engine calls in this block, a replay calls again. In Model Runner V2 it is the local `forward_fn`, in
    `CUDAGraphWrapper` the model with the arguments that it was called with."""
    caller = sys._getframe(2)
    if forward := caller.f_locals.get("forward_fn"):
        mode: Any = import_module("vllm.config.compilation").CUDAGraphMode.NONE
        graph.launches = lambda: forward(mode)  # type: ignore[attr-defined]
        with graph.running():
            yield
        return
    local = {name: caller.f_locals[name] for name in ("self", "args", "kwargs")}
    with graph.running():
        yield
    graph.launches = _again(**local, output=caller.f_locals["output"])  # type: ignore[attr-defined]


def _again(self: Any, args: Any, kwargs: Any, output: Any) -> Any:
    """What a wrapped model launched, once more: with the forward context of capture, into the memory of its result."""
    contexts: Any = import_module("vllm.forward_context")
    captured = contexts.get_forward_context()

    def launches() -> None:
        with contexts.override_forward_context(captured):
            output.copy_(self.runnable(*args, **kwargs))

    return launches


def _on_host(former: Any) -> Any:
    """`Tensor.to`, which gives the tensor itself where it is there already."""

    def to(self: Any, *args: Any, **more: Any) -> Any:
        result = former(self, *args, **more)
        host = (args[0] if args else more.get("device")) == "cpu"
        return result.clone() if host and result is self else result

    return to


def stand_in() -> None:
    """For good, in this process."""
    torch_: Any = torch
    torch_.Tensor.cpu = lambda self, *args, **more: self.clone()
    torch_.Tensor.to = _on_host(torch.Tensor.to)
    torch_.Event = torch_.cuda.Event = Event
    torch_.cuda.Stream = torch_.Stream = Stream
    torch_.cuda.CUDAGraph, torch_.cuda.graph = CUDAGraph, _graph
    torch_.cuda.current_stream = lambda device=None: Stream()
    torch_.cuda.stream = lambda stream: nullcontext()
    torch_.cuda.set_stream = lambda stream: None
    for name, answer in {"synchronize": None, "empty_cache": None, "get_memory_info": (1 << 30, 1 << 31)}.items():
        setattr(torch_.accelerator, name, lambda *args, answer=answer: answer)
    for name, answer in {"synchronize": None, "empty_cache": None, "mem_get_info": (1 << 30, 1 << 31)}.items():
        setattr(torch_.cuda, name, lambda *args, answer=answer: answer)
    platform = type(import_module("vllm.platforms").current_platform)
    platform.get_current_memory_usage = classmethod(lambda cls, device=None: 0.0)
    platform.get_global_graph_pool = platform.graph_pool_handle = lambda self: (0, 0)
    utils: Any = kernels.found("vllm.utils.torch_utils") or import_module("vllm.utils")
    if hasattr(utils, "get_accelerator_view_from_cpu_tensor"):
        kernels._everywhere(utils.get_accelerator_view_from_cpu_tensor, lambda tensor: tensor)
    if hasattr(utils, "current_stream"):
        kernels._everywhere(utils.current_stream, Stream)
    take_any_mask()
    parallel: Any = import_module("vllm.distributed.parallel_state")
    kernels._everywhere(parallel.graph_capture, lambda *args, **kwargs: nullcontext())
    if hasattr(parallel, "prepare_communication_buffer_for_model"):  # up to 0.32
        kernels._everywhere(parallel.prepare_communication_buffer_for_model, lambda model: None)
