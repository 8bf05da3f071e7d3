"""Keeps this process's record up to date: opened when an engine is imported, rewritten when a state changes."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache
from multiprocessing import util
from pathlib import Path
from typing import Any, TypeVar

from ..engines import ENGINES, Engine, version_in, version_of
from . import messages, process_role
from .fix_state import FixState, PlainCounters
from .process_record import MappedCounters, MappedLooks, Record, started


class Unrecorded(PlainCounters):
    """Counters of a forked child that has no record yet: the first store asks for one."""

    def __init__(self, wanted: Callable[[], None]):
        super().__init__()
        self._wanted = wanted  # from here on

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "_wanted" and "_wanted" in self.__dict__:
            self._wanted()


class Recorder:
    """One in each process. A disk that takes no record costs a WARNING and nothing else."""

    def __init__(self, states: Callable[[], Collection[FixState]], facts: Callable[[], dict[str, Any]]):
        """`states()` are of the fixes in this process; more may come, and those that are there keep their order. `facts()` is
        what the record says beside the fixes; it must be cheap and never wait for a GPU."""
        self._states, self._facts = states, facts
        self._engine: Engine | None = None
        self._record: Record | None = None
        self._parents: Record | None = None  # in a forked child that has none of its own
        self._refused = False
        self._activated = time.time()
        self._lock = threading.RLock()
        # A multiprocessing child has its name only after the fork
        util.register_after_fork(self, Recorder._write)

    def open(self, engine: Engine | None = None) -> None:
        """Have a record and bring it up to date. `engine`: the one whose target module was loaded, None for a mere package."""
        with self._lock:
            self._engine = engine or self._engine or _first_imported()
            if self._record is None and not self._refused and self._engine:
                self._open(self._engine.name)
            if self._record is not None:
                self._count_in(self._record)
        self._write()

    def _open(self, engine: str) -> None:
        try:
            self._record = Record()
        except Exception as error:  # a disk that is full, read-only or gone; no memory
            self._refused = True
            messages.warn(engine, f"no process record, `attnfix status` will not show this process: {error}")
            return
        if self._record.unlocked:
            messages.warn(engine, f"the process record has no lock, other hosts cannot tell its end: {self._record.unlocked}")

    def _count_in(self, record: Record) -> None:
        """From here on, fixes that do not yet count in the record do: what they have counted is taken along."""
        for index, state in enumerate(self._states()):
            if isinstance(state.counters, PlainCounters):
                state.counters = _taken_along(record.counters(index), state.counters)
            if isinstance(state.looks, PlainCounters):
                state.looks = _taken_along(record.looks(index), state.looks)

    def note(self) -> None:
        """Bring the record up to date. Called while the engine serves, too: lets no exception out."""
        if self._record is None and self._parents is not None:
            self._first_use()
        else:
            self._write()

    def _write(self) -> None:
        if self._record is not None:
            with suppress(Exception), self._lock:
                self._record.write(self._text())

    def forked(self) -> None:
        """In a forked child: counters from zero, and no record before there is something to say. Most children of an engine
        start a program or answer one question, and a record costs more than their fork.

        The parent's record stays mapped: so `attnfix status` knows a child without one (`unpatched_processes.by_mapping`).
        """
        self._lock = threading.RLock()
        if self._record is None and self._parents is None:
            return
        if self._record is not None:
            self._record.leave_to_parent()
            self._parents, self._record = self._record, None
        self._activated = time.time()
        for state in self._states():
            state.counters, state.looks = Unrecorded(self._first_use), Unrecorded(self._first_use)

    def _first_use(self) -> None:
        """Have a record in a forked child."""
        with suppress(Exception), self._lock:
            for state in self._states() if self._refused else ():
                for counters in (state.counters, state.looks):
                    counters.__dict__.pop("_wanted", None)  # it is not asked for again
            if self._record is None and not self._refused:
                self.open()

    def _text(self) -> dict[str, Any]:
        pid, role, version, states = os.getpid(), process_role.of_this_process(), own_version(), self._states()
        assert self._engine is not None
        return {
            "pid": pid,
            "started": started(pid),
            "host": socket.gethostname(),
            "role": role.name,
            "rank": role.rank,
            "engine": self._engine.name,
            "release": version_of(self._engine),
            "attnfix": version,
            "activated": self._activated,
            "fixset": fixset(version, states),
            "fixes": [state.as_dict() for state in states],
            **self._facts(),
        }


_Mapped = TypeVar("_Mapped", MappedCounters, MappedLooks)


def _taken_along(mapped: _Mapped, counted: PlainCounters) -> _Mapped:
    for name, *_ in mapped._fields_:
        setattr(mapped, name, getattr(counted, name))
    return mapped


def fixset(version: str | None, states: Iterable[FixState]) -> str:
    """Short name of the fixes that are armed or observed in a process, and of its attnfix: equal sets, equal name."""
    states = list(states)
    observed = (observed_name(state.fix.id) for state in states if state.observed)
    return fixset_name(version, [*(state.fix.id for state in states if state.armed), *observed])


def observed_name(fix: str) -> str:
    """What stands for a fix in the name of a set, where it is observed."""
    return f"observe {fix}"


def fixset_name(version: str | None, armed: Iterable[str]) -> str:
    """The same of the ids of those fixes."""
    return hashlib.sha256("\n".join([version or "", *sorted(armed)]).encode()).hexdigest()[:12]


@cache
def own_version() -> str | None:
    """Version of the attnfix in this process; None where its metadata was left out.

    What lies beside the package comes first: `sys.path` may hold another copy before it.
    """
    if found := version_in(Path(__file__).parents[3], "attnfix"):
        return found
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("attnfix")
    except PackageNotFoundError:
        return None


def _first_imported() -> Engine | None:
    """Of two engines in a process, the one that brought the other: its package was imported first."""
    return next((ENGINES[name] for name in list(sys.modules) if name in ENGINES), None)
