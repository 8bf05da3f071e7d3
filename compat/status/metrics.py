"""Fixes on the engine's own /metrics page, where it makes one with `prometheus_client`. We serve nothing and import nothing
of it that the engine has not imported.

Counters are read from the process records when the page is asked for: a call costs nothing more. A page shows the processes of
its own server, which is where the calls are made. They are told by the key that `multiprocessing` hands from a process to its
children, whatever their start method, and workers that Ray starts by a variable. Two ways onto the page: a collector in the
default registry, and, for the registries that engines make of a folder (PROMETHEUS_MULTIPROC_DIR), what
`MultiProcessCollector` collects.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from .fix_state import DORMANT, EFFECTIVE, INSTALLED, OBSERVED, refusals

_CLIENT, _MULTIPROCESS = "prometheus_client", "prometheus_client.multiprocess"
#: Modules with which an engine makes its page
MODULES = frozenset({_CLIENT, _MULTIPROCESS})
_COUNTED = {
    "calls": "Calls of the engine's functions that a fix stands on.",
    "corrections": "Calls whose result had to be corrected.",
    "rows": "Rows that were corrected.",
}
_LOOKED = {
    "calls": "Calls that a fix looked at under ATTNFIX=observe; nothing was corrected.",
    "needed": "Of these, calls in which its correction would have run; nothing was corrected.",
}
#: How a counter's name goes on -> the counters, their place in a record's row, and the states that have them at 0
_KINDS = {"": (_COUNTED, "counters", (INSTALLED, EFFECTIVE)), "observed_": (_LOOKED, "observed", (OBSERVED,))}
#: In it a process names its server to the workers that Ray starts for it, which are no children of its own
SERVER = "ATTNFIX_SERVER"
_WAIT_S = 0.25  # of a scrape for the thread that reads the records
_READING_S = 0.01  # that one scrape reads records of which nothing is known yet
_Totals: TypeAlias = dict[tuple[str, str, str], list[int]]
_Found: TypeAlias = tuple[list[dict[str, Any]], _Totals]
_Stamp: TypeAlias = tuple[int, int]
_LABELS = ("fix", "engine", "state", "release")
_PROCESS = ("engine", "release", "attnfix")
#: Every metric on a page, as Prometheus names it, with its labels
METRICS = {
    **{
        f"attnfix_{prefix}{name}_total": frozenset({"fix", "engine"})
        for prefix, (counted, *_) in _KINDS.items()
        for name in counted
    },
    "attnfix_fix_info": frozenset({*_LABELS, "attnfix"}),
    "attnfix_processes": frozenset(_PROCESS),
    "attnfix_refused_processes": frozenset({*_PROCESS, "reason"}),
    "attnfix_observing_processes": frozenset(_PROCESS),
}


def server() -> str:
    """Name of the server that this process belongs to, equal in all processes that `multiprocessing` or Ray made for it."""
    if named := os.environ.get(SERVER):
        return named
    import hashlib  # here and below: joining a page must cost next to nothing in programs that are no engine
    import multiprocessing

    return hashlib.sha256(b"attnfix" + multiprocessing.current_process().authkey).hexdigest()[:16]


def module_loaded(name: str) -> None:
    """Join the page that module `name` is for, if it is one of MODULES. Idempotent; lets no exception out."""
    with suppress(Exception):
        if name == _CLIENT:
            _join(sys.modules[name].REGISTRY)
        elif name == _MULTIPROCESS:
            _extend(sys.modules[name].MultiProcessCollector)


def catch_up() -> None:
    """The same for pages that were made before attnfix was active."""
    for name in MODULES & sys.modules.keys():
        module_loaded(name)


def _join(registry: Any) -> None:
    if not getattr(registry, "attnfix", False):  # no other activation path was here first
        registry.attnfix = True
        registry.register(_Collector())


def _extend(collector: Any) -> None:
    stock = collector.collect
    if getattr(stock, "attnfix", False):  # another activation path was here first
        return

    @functools.wraps(stock)
    def collect(self: Any) -> list[Any]:
        return [*stock(self), *families()]

    collect.attnfix = True  # type: ignore[attr-defined]  # copied by whoever wraps it in turn
    collector.collect = collect


class _Collector:
    """In the default registry; where the page is made of a folder, it is not made of this registry."""

    def describe(self) -> Iterable[Any]:
        """The names alone; none that a collector of the folder would bring into the same registry, which refuses them twice."""
        return [] if "PROMETHEUS_MULTIPROC_DIR" in os.environ else _families([], {})

    def collect(self) -> Iterable[Any]:
        return [] if "PROMETHEUS_MULTIPROC_DIR" in os.environ else families()


def families() -> list[Any]:
    """What this server's processes have counted so far, in `prometheus_client`'s form; empty where there is nothing to say."""
    with suppress(Exception):
        return [family for family in _families(*_counts.now()) if family.samples]
    return []


class _Counts:
    """Of this server: the processes that run, and what all have counted (by kind, fix, engine).

    A process that has ended is read once, and one whose record is gone keeps what it had counted: no sum ever falls. A thread
    reads the folder, since engines make their page in the process that serves requests; and never for long: this process's
    record first, then the newest.
    """

    def __init__(self) -> None:
        self._of: tuple[str, str] | None = None
        self._thread: threading.Thread | None = None
        self._found: _Found = [], {}
        self._lock = threading.Lock()  # engines may make two pages at once

    def forked(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it

    def now(self) -> _Found:
        with self._lock:
            if (thread := self._thread) is None or not thread.is_alive():  # that of a forked child's parent is not
                thread = self._thread = threading.Thread(target=self._look, name="attnfix-metrics", daemon=True)
                thread.start()
        thread.join(_WAIT_S)
        return self._found

    def _look(self) -> None:
        with suppress(Exception):
            from . import process_record

            mine = server()
            if self._of != (of := (mine, str(process_record.folder()))):
                self._of, self._found = of, ([], {})
                self._done: set[str] = set()  # records of processes that have ended; the counts of ours are in `_ended`
                self._passed: dict[str, _Stamp] = {}  # unreadable ones, and others' that run: each may become ours
                self._waiting: dict[str, _Stamp] = {}  # those that no scrape had time for
                self._ended: _Totals = {}
                self._last: dict[str, dict[str, Any]] = {}
            names = set(process_record.paths())
            self._done &= names
            self._passed = {name: stamp for name, stamp in self._passed.items() if name in names}
            stamps = {name: self._waiting.get(name) or _stamp(name) for name in names - self._done - self._last.keys()}
            new = [name for name, stamp in stamps.items() if self._passed.get(name) != stamp]
            own = f"/{process_record.own_prefix()}"
            new.sort(key=lambda name: (own in name, stamps[name]))
            for name in list(self._last):
                self._read(name, mine, name in names)
            until = time.monotonic() + _READING_S
            while new:
                self._read(name := new.pop(), mine)
                if name not in self._last and name not in self._done:
                    self._passed[name] = stamps[name]
                if time.monotonic() > until:
                    break
            self._waiting = {name: stamps[name] for name in new}
            totals = {key: [*counts] for key, counts in self._ended.items()}
            for text in self._last.values():
                _add(totals, text)
            self._found = list(self._last.values()), totals

    def _read(self, name: str, mine: str, there: bool = True) -> None:
        from . import process_record

        text, known = process_record.seen(Path(name)), self._last.get(name)
        ours = text and text.get("server") == mine
        if text and text["alive"]:
            if ours:
                self._last[name] = text
        elif text or (known and not there):
            _add(self._ended, (text if ours else known) or {"fixes": ()})
            self._done.add(name)
            self._last.pop(name, None)


_counts = _Counts()
os.register_at_fork(after_in_child=lambda: _counts.forked())


def _stamp(name: str) -> _Stamp:
    """What changes with a record's text."""
    try:
        found = os.lstat(name)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _rows(process: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (row for row in process["fixes"] if row["fix"].startswith(f"{process['engine']}."))


def _add(totals: _Totals, process: dict[str, Any]) -> None:
    for row in _rows(process):
        for prefix, (counted, place, states) in _KINDS.items():
            counts = [row.get(place, {}).get(name, 0) for name in counted]
            if row["state"] in states or any(counts):
                key = prefix, row["fix"], process["engine"]
                totals[key] = [a + b for a, b in zip(totals.get(key, [0] * len(counts)), counts)]


def _families(processes: Iterable[dict[str, Any]], totals: _Totals) -> list[Any]:
    """Counters over all processes, so that they never fall when one ends; states of those that run."""
    from prometheus_client.metrics_core import CounterMetricFamily, InfoMetricFamily

    from .recorder import own_version

    states: set[tuple[str, ...]] = set()
    running: Counter[tuple[str, ...]] = Counter()
    observing: Counter[tuple[str, ...]] = Counter()
    refused: Counter[tuple[str, ...]] = Counter()
    for process in processes:
        engine = process["engine"]
        named = engine, process["release"] or "", process.get("attnfix") or ""
        numbers = observing if process.get("observes") is True else running
        numbers[named] += 1
        refused.update((*named, reason) for reason in refusals(process["fixes"]))
        states |= {(row["fix"], engine, row["state"], process["release"] or "") for row in _rows(process)
                   if row["state"] != DORMANT}  # fmt: skip
    counters = []
    for prefix, (counted, *_) in _KINDS.items():
        for place, (name, text) in enumerate(counted.items()):
            counters.append(counter := CounterMetricFamily(f"attnfix_{prefix}{name}", text, labels=("fix", "engine")))
            for (kind, *labels), total in sorted(totals.items()):
                if kind == prefix:
                    counter.add_metric(labels, total[place])
    info = InfoMetricFamily("attnfix_fix", "State of each fix in the processes of this server.", labels=_LABELS)
    for state in sorted(states):
        info.add_metric(state, {"attnfix": own_version() or ""})
    here = "Processes of this server on this node"
    active = f"{here} in which attnfix is active; its ranks on other nodes are missing here."
    gauges = [
        _gauge("attnfix_processes", active, _PROCESS, running),
        _gauge("attnfix_observing_processes", f"{here} that observe (ATTNFIX=observe): nothing is corrected in them.", _PROCESS,
               observing),
        _gauge("attnfix_refused_processes", f"{here} in which nothing is armed, and why.", (*_PROCESS, "reason"), refused),
    ]  # fmt: skip
    return [*counters, info, *gauges]


def _gauge(name: str, told: str, labels: tuple[str, ...], numbers: Counter[tuple[str, ...]]) -> Any:
    from prometheus_client.metrics_core import GaugeMetricFamily

    gauge = GaugeMetricFamily(name, told, labels=labels)
    for values, number in sorted(numbers.items()):
        gauge.add_metric(values, number)
    return gauge
