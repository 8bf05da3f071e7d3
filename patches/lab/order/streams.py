"""Stand-ins of streams and events, at the names that engines call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, ClassVar

from attnfix.patches.lab.proof import replaced

from .clocks import Clock
from .recorder import Order


class Stream:
    """`torch.cuda.Stream`. A stream made by torch waits for no other by itself, the default stream included."""

    order: ClassVar[Order]
    device_index, device_type, priority = 0, 1, 0

    def __init__(self, *args: Any, **kwargs: Any):
        self.actor = self.order.new_stream()
        self._entered: list[Any] = []

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -1

    @property
    def device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    @property
    def cuda_stream(self) -> int:
        return self.actor.number

    stream_id = native_handle = cuda_stream

    def record_event(self, event: Any = None) -> Any:
        event = self.event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        self.order.host_waits_for_stream(self)

    def query(self) -> bool:
        return self.order.is_done(dict(self.actor.clock))

    def __enter__(self) -> Stream:
        self._entered.append(self.order.current_stream())
        self.order.set_stream(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self.order.set_stream(self._entered.pop())

    event: ClassVar[Any]


class Event:
    """`torch.cuda.Event`: a wait for one that was never recorded does nothing; one that is recorded again is of the last time
    alone."""

    order: ClassVar[Order]
    cuda_event = event_id = 0

    def __init__(self, *args: Any, **kwargs: Any):
        self._record: tuple[Clock, str] = {}, ""

    def record(self, stream: Any = None) -> None:
        self._record = self.order.recorded(stream)

    def wait(self, stream: Any = None) -> None:
        self.order.stream_waits(stream, self._asked())

    def synchronize(self) -> None:
        self.order.host_waits(self._asked())

    def query(self) -> bool:
        return self.order.is_done(self._asked())

    def _asked(self) -> Clock:
        clock, where = self._record
        self.order.asked(where)
        return clock

    def elapsed_time(self, other: Any) -> float:
        return 0.0


class _Runtime:
    """`torch.cuda.cudart()`."""

    def __init__(self, order: Order):
        self._order = order

    def cudaHostRegister(self, address: int, size: int, flags: int) -> Any:
        self._order.register(int(address), int(size))
        return Success(0)

    def cudaHostUnregister(self, address: int) -> Any:
        return Success(0)


class Success(int):
    """An error code of CUDA, as a number and as an enum."""

    @property
    def value(self) -> int:
        return int(self)


@contextmanager
def stood_in(order: Order) -> Iterator[None]:
    """Inside, torch's streams and events are those of `order`."""
    import torch

    event = type("Event", (Event,), {"order": order})
    stream = type("Stream", (Stream,), {"order": order, "event": event})
    default = stream()
    default.actor = order.default

    def current(device: Any = None) -> Any:
        return order.current_stream() or default

    def entered(other: Any = None) -> Any:
        return nullcontext() if other is None else _Entered(order, other)

    def record_stream(tensor: Any, stream: Any) -> None:
        order.memory(tensor).known_streams.add(stream.actor.number)

    def synchronize(device: Any = None) -> None:
        order.host_waits_for_all()

    names: dict[str, Any] = {
        "Stream": stream, "Event": event, "current_stream": current, "default_stream": lambda device=None: default,
        "stream": entered, "StreamContext": entered, "synchronize": synchronize, "current_device": lambda: 0,
        "set_stream": order.set_stream, "cudart": lambda: _Runtime(order), "is_current_stream_capturing": lambda: False,
        "set_device": lambda device: None, "device": lambda device: nullcontext(), "empty_cache": lambda: None,
        "device_count": lambda: 1,
    }  # fmt: skip
    with ExitStack() as stack:
        for name, value in names.items():
            stack.enter_context(replaced(torch.cuda, name, value))
        for name in ("Stream", "Event", "current_stream", "stream", "synchronize"):
            stack.enter_context(having(torch.cpu, name, names[name]))
        for name in ("current_stream", "set_stream", "synchronize"):
            stack.enter_context(having(torch.accelerator, name, names[name]))
        torch.Tensor.record_stream = record_stream  # type: ignore[assignment,method-assign]  # its own is TensorBase's
        stack.callback(delattr, torch.Tensor, "record_stream")
        stack.enter_context(replaced(torch, "Stream", stream))
        stack.enter_context(replaced(torch, "Event", event))
        yield


class _Entered:
    """`torch.cuda.stream(other)`."""

    def __init__(self, order: Order, stream: Any):
        self._order, self._stream, self._before = order, stream, [None]

    def __enter__(self) -> Any:
        self._before.append(self._order.current_stream())
        self._order.set_stream(self._stream)
        return self._stream

    def __exit__(self, *error: Any) -> None:
        self._order.set_stream(self._before.pop())


@contextmanager
def having(owner: Any, name: str, value: Any) -> Iterator[None]:
    """As `replaced`, also where there is none of that name."""
    missing = object()
    before = getattr(owner, name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
