"""Threads of the host, and what orders them: start and join, locks, conditions, events, queues."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attnfix.patches.lab.proof import replaced

from .recorder import Order

#: Their own use of locks and events tells nothing: what passes is told where it passes
_LIBRARY = {"threading", "queue", "logging"}
_FUTURES = {"concurrent.futures._base", "concurrent.futures.thread"}


def _called_by(modules: set[str]) -> bool:
    """Whether the caller of the function that asks is in one of these modules."""
    return sys._getframe(2).f_globals.get("__name__", "") in modules


class Lock:
    """A lock: one who gets it knows what the one before knew when it was released."""

    def __init__(self, order: Order, real: Any):
        self._order, self._real = order, real

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        got = bool(self._real.acquire(*args, **kwargs))
        if got:
            self._order.take_over(self)
        return got

    def release(self) -> None:
        self._order.pass_on(self)
        self._real.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: Any) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@contextmanager
def watched(order: Order) -> Iterator[None]:
    """Inside, threads that start are recorded, and what passes between threads orders them."""
    from . import modes

    def start(real: Any, thread: Any) -> None:
        run, clock = thread.run, dict(order.thread().clock)

        def recorded() -> None:
            order.adopt(thread.name, clock)
            with modes.recording(order):
                try:
                    run()
                finally:
                    order.pass_on(thread)

        thread.run = recorded
        real(thread)

    def joined(real: Any, thread: Any, timeout: Any = None) -> None:
        real(thread, timeout)
        if not thread.is_alive():
            order.take_over(thread)

    def before(real: Any, thing: Any, *args: Any, **kwargs: Any) -> Any:
        order.pass_on(thing)
        return real(thing, *args, **kwargs)

    def after(real: Any, thing: Any, *args: Any, **kwargs: Any) -> Any:
        result = real(thing, *args, **kwargs)
        if result is not False:
            order.take_over(thing)
        return result

    def cleared(real: Any, thing: Any) -> None:
        order.forget(thing)
        real(thing)

    simple = type("SimpleQueue", (queue._PySimpleQueue,), {})  # type: ignore[attr-defined]
    wrapped: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (threading.Thread, "start", start), (threading.Thread, "join", joined), (threading.Event, "set", before),
        (threading.Event, "wait", after), (threading.Event, "is_set", after), (threading.Event, "clear", cleared),
        (threading.Condition, "notify", before), (threading.Condition, "wait", after),
        (threading.Condition, "__enter__", after), (threading.Condition, "__exit__", before),
        (threading.Semaphore, "release", before), (threading.Semaphore, "acquire", after),
        (queue.Queue, "put", before), (queue.Queue, "get", after), (simple, "put", before), (simple, "get", after),
    )  # fmt: skip
    with ExitStack() as stack:
        for owner, name, way in wrapped:
            stack.enter_context(replaced(owner, name, _around(way, getattr(owner, name))))
        for name in ("Lock", "RLock"):
            stack.enter_context(replaced(threading, name, _locks(order, getattr(threading, name))))
        stack.enter_context(replaced(queue, "SimpleQueue", simple))
        yield


def _around(way: Callable[..., Any], real: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _called_by(_LIBRARY):
            return real(self, *args, **kwargs)
        return way(real, self, *args, **kwargs)

    return method


def _locks(order: Order, real: Any) -> Callable[[], Any]:
    return lambda: real() if _called_by(_LIBRARY | _FUTURES) else Lock(order, real())
