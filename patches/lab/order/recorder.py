"""The recorder: operations, what orders them, and the races among them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np

from . import memory as shadow
from .clocks import Actor, Clock, Operation, Race, join
from .memory import DEVICE, HOST, PINNED, Cells, Memory

#: What a caller names as read or written: a tensor; a tensor and rows of it; an address and a number of bytes
Access = Any

_HERE = str(Path(__file__).parent)
_NOT_SHOWN = (_HERE, "/torch/", "/contextlib.py", "/threading.py", "/queue.py", "<")


class Order:
    """Records while it is entered.

    engine: a part of the paths of the engine's files, such as "/sglang/srt/": reports name its lines.
    polls: the answer of `query()` about work that the host has not waited for; a True tells the host that it is done.

    races: what was found, each pair of lines once.
    """

    def __init__(self, engine: str = "", polls: bool = True):
        self.engine, self.polls = engine, polls
        self.races: list[Race] = []
        self.active = False
        self._actors: list[Actor] = []
        self.default = self._actor("default stream", host=False)
        self._operations: list[Operation] = [Operation(self.default, 0, "nothing", "")]
        self._pairs: dict[tuple[str, ...], Race] = {}
        self._memories: dict[int, Memory] = {}
        #: Recorded events: (clock, line)
        self._records: list[tuple[Clock, str]] = []
        self._asked: set[str] = set()
        self._own = threading.local()
        self._guard = threading.RLock()
        self._clocks: WeakKeyDictionary[Any, Clock] = WeakKeyDictionary()
        self._stack = ExitStack()

    # What a scenario says

    def stream(self, name: str) -> Any:
        """A stream as the engine would make one."""
        import torch

        made = torch.cuda.Stream()
        self.name(made, name)
        return made

    def name(self, thing: Any, name: str) -> None:
        """Call a stream so, or the storage of a tensor, in reports."""
        actor = getattr(thing, "actor", None)
        if actor is not None:
            actor.name = name
        else:
            self.memory(thing).name = name

    def device(self, *tensors: Any) -> None:
        """These tensors, made before, are in the GPU's memory."""
        self._mark(tensors, DEVICE)

    def pinned(self, *tensors: Any) -> None:
        """These tensors, made before, are in pinned memory of the host."""
        self._mark(tensors, PINNED)

    def launch(self, what: str, reads: Iterable[Access] = (), writes: Iterable[Access] = (), stream: Any = None) -> None:
        """A kernel on `stream`, or the current one."""
        self._operate(self._stream(stream), what, self._regions(reads), self._regions(writes))

    def copy(self, what: str, reads: Iterable[Access], writes: Iterable[Access], stream: Any, any_order: bool = False) -> None:
        """A copy of the driver on a stream. any_order: it may read its source before its turn comes (cuMemcpyBatchAsync with
        CU_MEMCPY_SRC_ACCESS_ORDER_ANY)."""
        actor = self._stream(stream)
        if any_order:
            engine = self._actor(f"the copy engine, ahead of {actor.name},", host=False)
            self._operate(engine, what, self._regions(reads), [])
            join(actor.clock, engine.clock)
        else:
            self._operate(actor, what, self._regions(reads), [])
        self._operate(actor, what, [], self._regions(writes))

    def host(self, what: str, reads: Iterable[Access] = (), writes: Iterable[Access] = ()) -> None:
        """What this thread of the host reads and writes itself."""
        self._operate(self.thread(), what, self._regions(reads), self._regions(writes))

    def handed_over(self, *accesses: Access) -> None:
        """A new owner has this memory, and has to write it before it reads it."""
        with self._guard:
            number = self._number(self._step(self.thread(), "new owner"))
            for found, cells in self._regions(accesses):
                found.hand_over(found.cells(cells), number)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Inside, this thread's torch ops are not recorded: a stand-in that computes what it has told with `launch`."""
        before = getattr(self._own, "silent", False)
        self._own.silent = True
        try:
            yield
        finally:
            self._own.silent = before

    def report(self) -> str:
        """All races, one a line."""
        return "\n".join(map(str, self.races))

    # While it is entered

    def __enter__(self) -> Order:
        from . import modes, streams, threads

        self._own.actor = self._actor("the host", host=True)
        self.active = True
        try:
            self._stack.enter_context(streams.stood_in(self))
            self._stack.enter_context(threads.watched(self))
            self._stack.enter_context(modes.recording(self))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self.active = False
        self._stack.close()

    # For the stand-ins

    @property
    def recording(self) -> bool:
        return self.active and not getattr(self._own, "silent", False)

    def thread(self) -> Actor:
        """The host's thread that runs this."""
        actor: Actor | None = getattr(self._own, "actor", None)
        if actor is None:
            actor = self._own.actor = self._actor(f"thread {len(self._actors)}", host=True)
        return actor

    def adopt(self, name: str, clock: Clock) -> None:
        """This thread was started by one that knew so much."""
        self._own.actor = self._actor(f"thread {name}", host=True)
        join(self._own.actor.clock, clock)

    def stream_of(self, handle: int) -> Any:
        """The stream whose `cuda_stream` is this number."""
        return SimpleNamespace(actor=self._actors[handle])

    def current_stream(self) -> Any:
        return getattr(self._own, "stream", None)

    def set_stream(self, stream: Any) -> None:
        self._own.stream = stream

    def new_stream(self) -> Actor:
        return self._actor(f"stream {len(self._actors)}", host=False)

    def recorded(self, stream: Any) -> tuple[Clock, str]:
        """An event on the stream: what its completion tells, and the line that records it."""
        actor = self._stream(stream)
        with self._guard:
            join(actor.clock, self.thread().clock)
            clock, where = dict(actor.clock), self._where()
            self._records.append((clock, where))
        return clock, where

    def asked(self, where: str) -> None:
        """Somebody waits for an event that was recorded at this line, or polls it."""
        self._asked.add(where)

    def unasked(self) -> set[str]:
        """Lines that record events for which nobody has waited: those order nothing."""
        return {where for _, where in self._records} - self._asked

    def stream_waits(self, stream: Any, clock: Clock) -> None:
        actor = self._stream(stream)
        with self._guard:
            join(actor.clock, self.thread().clock)
            join(actor.clock, clock)

    def host_waits(self, clock: Clock) -> None:
        with self._guard:
            join(self.thread().clock, clock)

    def host_waits_for_stream(self, stream: Any = None) -> None:
        self.host_waits(self._stream(stream).clock)

    def host_waits_for_all(self) -> None:
        for actor in [*self._actors]:
            if not actor.host:
                self.host_waits(actor.clock)

    def is_done(self, clock: Clock) -> bool:
        """Answer a poll."""
        known = self.thread().clock
        if all(tick <= known.get(actor, 0) for actor, tick in clock.items()):
            return True
        if self.polls:
            self.host_waits(clock)
        return self.polls

    def pass_on(self, thing: Any) -> None:
        """This thread leaves with `thing` (a lock, a queue) what it knows."""
        if self.active:
            with self._guard:
                join(self._clocks.setdefault(thing, {}), self.thread().clock)

    def take_over(self, thing: Any) -> None:
        """This thread learns what was left with `thing`."""
        if self.active:
            with self._guard:
                join(self.thread().clock, self._clocks.get(thing, {}))

    def forget(self, thing: Any) -> None:
        self._clocks.pop(thing, None)

    def memory(self, tensor: Any, kind: str | None = None) -> Memory:
        """The storage of a tensor; one that is not known yet is of this kind, else pageable memory of the host."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        with self._guard:
            found = self._memories.get(key)
            if found is None:
                kind = kind or HOST
                size = storage.nbytes()
                name = f"{kind} memory of {size} bytes from {self._where()}"
                home = self._stream(None) if kind == DEVICE else None
                found = self._memories[key] = Memory(kind, name, storage.data_ptr(), size, home)
                finalize(storage, self._freed, key).atexit = False
        return found

    def of_array(self, array: Any) -> tuple[Memory, int] | None:
        """The storage that an array of numpy is in, and the byte at which it begins there."""
        address = array.__array_interface__["data"][0]
        for found in [*self._memories.values()]:
            if found.address <= address < found.address + found.size:
                return found, address - found.address
        return None

    def register(self, address: int, size: int) -> None:
        """The host's memory from this address on is pinned."""
        for found in [*self._memories.values()]:
            if found.kind == HOST and address <= found.address < address + size:
                found.kind = PINNED

    def operate(self, what: str, reads: list[tuple[Memory, Cells]], writes: list[tuple[Memory, Cells]], sync: bool) -> None:
        """An op of torch: of the current stream if the GPU's memory has a part in it, else of this thread.

        Pageable memory of the host is read by the host at the launch, and written before the call returns. sync: it returns
        when the work is done.
        """
        if not any(found.kind == DEVICE for found, _ in [*reads, *writes]):
            self._operate(self.thread(), what, reads, writes)
            return
        pageable = [one for one in reads if one[0].kind == HOST]
        results = [one for one in writes if one[0].kind == HOST]
        if pageable:
            self._operate(self.thread(), what, pageable, [])
        stream = self._stream(None)
        self._operate(
            stream, what, [one for one in reads if one[0].kind != HOST], [one for one in writes if one[0].kind != HOST]
        )
        if sync or results:
            self.host_waits(stream.clock)
        if results:
            self._operate(self.thread(), what, [], results)

    # Inside

    def _actor(self, name: str, host: bool) -> Actor:
        actor = Actor(len(self._actors), name, host)
        self._actors.append(actor)
        return actor

    def _stream(self, stream: Any) -> Actor:
        stream = self.current_stream() if stream is None else stream
        actor: Actor = self.default if stream is None else stream.actor
        return actor

    def _mark(self, tensors: Iterable[Any], kind: str) -> None:
        for tensor in tensors:
            found = self.memory(tensor, kind)
            found.kind, found.home = kind, self._stream(None) if kind == DEVICE else None

    def _regions(self, accesses: Iterable[Access]) -> list[tuple[Memory, Cells]]:
        with self.silent():
            return [one for access in accesses for one in self._region(access)]

    def _region(self, access: Access) -> Iterator[tuple[Memory, Cells]]:
        if not isinstance(access, tuple):
            yield self.memory(access), shadow.bytes_of(access)
        elif isinstance(access[0], (int, np.integer)):
            address, size = int(access[0]), int(access[1])
            for found in [*self._memories.values()]:
                if found.address <= address < found.address + found.size:
                    yield found, slice(address - found.address, address - found.address + size)
                    break
        else:
            yield self.memory(access[0]), shadow.bytes_of_rows(*access)

    def _step(self, actor: Actor, what: str) -> Operation:
        if not actor.host:
            join(actor.clock, self.thread().clock)
        return Operation(actor, actor.step(), what, self._where())

    def _number(self, operation: Operation) -> int:
        self._operations.append(operation)
        return len(self._operations) - 1

    def _operate(self, actor: Actor, what: str, reads: list[tuple[Memory, Cells]], writes: list[tuple[Memory, Cells]]) -> None:
        if not self.active or not (reads or writes):
            return
        with self._guard:
            operation = self._step(actor, what)
            number = self._number(operation)
            for found, cells in reads:
                cells = found.cells(cells)
                self._compare("read after write", found, found.writers(cells), operation)
                for one in found.void(cells):
                    self._report("read of nothing", found, self._operations[one], operation, "its owner has not written it")
                found.read(cells, actor, number)
            for found, cells in writes:
                cells = found.cells(cells)
                self._compare("write after write", found, found.writers(cells), operation)
                self._compare("write after read", found, found.readers(cells), operation)
                found.written(cells, number)

    def _compare(self, kind: str, found: Memory, before: Iterable[int], operation: Operation) -> None:
        for number in before:
            first = self._operations[number]
            if not first.before(operation.actor.clock):
                self._report(kind, found, first, operation, self._missing(first, operation.actor))

    def _missing(self, first: Operation, waits: Actor) -> str:
        if first.actor.host:
            way = "lock, queue or event passes" if waits.host else "launch or event leads"
            return f"no {way} from {first.actor.name} to {waits.name}"
        behind = next((where for clock, where in self._records if first.before(clock)), None)
        event = f"the event that is recorded behind it at {behind}" if behind else "it: no event is recorded behind it"
        return f"{waits.name} does not wait for {event}"

    def _report(self, kind: str, found: Memory, first: Operation, second: Operation, missing: str) -> None:
        pair = (kind, found.name, first.what, first.where, second.what, second.where)
        if pair in self._pairs:
            self._pairs[pair].count += 1
            return
        self._pairs[pair] = race = Race(kind, first, second, found.name, missing)
        self.races.append(race)

    def _freed(self, key: int) -> None:
        """The storage is gone: the stream that it was allocated on may take its memory again at once."""
        with self._guard:
            found = self._memories.pop(key, None)
            if found is None or found.home is None or not self.active:
                return
            clock = dict(found.home.clock)
            join(clock, self.thread().clock)
            second = Operation(found.home, clock.get(found.home.number, 0), "memory is free for the next", self._where())
            for number in found.everything():
                first = self._operations[number]
                if not first.before(clock) and first.actor.number not in found.known_streams:
                    self._report("use after free", found, first, second, self._missing(first, found.home))

    def _where(self) -> str:
        frame = sys._getframe(1)
        other = ""
        while frame is not None:
            file = frame.f_code.co_filename
            if not any(part in file for part in _NOT_SHOWN):
                line = f"{Path(file).name}:{frame.f_lineno} {frame.f_code.co_name}"
                if not self.engine or self.engine in file:
                    return line
                other = other or line
            frame = frame.f_back  # type: ignore[assignment]
        return other
