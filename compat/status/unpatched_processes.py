"""Engine processes of this user that run on this machine without attnfix: what no record tells, /proc does (Linux).

Its limits: processes in another container, of another user or host are not seen; nor is one that neither maps a compiled module
of the engine that is installed here, nor is called as that engine's server or child would be. Switches that a process set after
its start are not seen either.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..arming import switches
from ..engines import ENGINES
from ..untrusted import line
from . import process_role
from .fix_state import EFFECTIVE, INSTALLED
from .process_record import folders, parent, places, read, read_open, runs, started, writer

_REMOVED = " (deleted)"  # behind the name of such a file in /proc
_COUNTS = ("counters", "observed")
_CLOCKS_S = 60  # by which a file server's clock may go before ours
_WRITTEN_S = 5  # the first text of a record has come by then
#: How old a process is at most that still imports its engine. Its record comes with the engine's package, before any compiled
#: module of the engine: but what the package needs, torch, takes minutes in a cold image on network storage. No longer, since a
#: full disk takes no record, and the startup probes of docs/quickstart-*.md give a server ten minutes
_STARTING_S, _IMPORTING_S = 60, 300  # with such a module mapped, and without one
OFF, STARTING, ELSEWHERE = "off", "starting", "elsewhere"
ACTIVE = "active"  #: attnfix is in it, and the record that it had from its parent cannot be read any more
NO_RECORD = "no record"  #: /proc cannot tell whether attnfix is active in it
RESTART_NEEDED = "restart needed"


def without_record(
    roots: Mapping[str, Path], recorded: Iterable[tuple[int, int]], alone: bool = False
) -> Iterator[dict[str, Any]]:
    """Each running engine process that is not in `recorded` (pid, start time): pid, started, engine, role, rank, state, reason.

    roots: package folder of each engine that is installed here; none, no process. alone: as for `by_mapping`.
    """
    since = _installed_at()
    for pid, start in _others(recorded) if roots else ():
        command = process_role.command_line(pid)
        loaded = _loaded(pid, roots)
        if engine := loaded or _called(pid, command, roots):
            role = process_role.of_title(" ".join(command))
            if role.name == process_role.UNKNOWN:
                role = process_role.of_command(command)
            state, reason = _why(pid, start, since, bool(loaded), alone)
            yield {"pid": pid, "started": start, "engine": engine, "role": role.name, "rank": role.rank, "state": state,
                   "reason": reason}  # fmt: skip


def by_mapping(recorded: Iterable[tuple[int, int]], alone: bool = False) -> Iterator[dict[str, Any]]:
    """What a record would say of each process that is not in `recorded` and maps one: its own, or that of its parent, in a
    forked child in which nothing was called yet (`Recorder.forked`). removed: it was its own, and is gone from its folder.

    alone: no running process has a record in this deployment's folder. Else another folder may be what keeps two apart.
    """
    for pid, start in _others(recorded):
        for record in _records(pid):
            if text := _told(pid, record, alone):
                seen = _now(pid) if record.own else _forked(text, pid, start)
                yield text | seen | {"alive": True, "removed": record.own and record.removed}
                break


def _now(pid: int) -> dict[str, Any]:
    """Role and rank, as far as the title of a process tells them."""
    role = process_role.of_title(process_role.title(pid))
    if role.name == process_role.UNKNOWN:
        return {}
    return {"role": line(role.name)} | ({"rank": role.rank} if role.rank else {})


def _forked(text: dict[str, Any], pid: int, start: int) -> dict[str, Any]:
    """What is another in a forked child than its parent's record says: nothing is counted there."""
    rows = [
        {**row, "state": _uncalled(row["state"]), **{name: dict.fromkeys(row[name], 0) for name in _COUNTS if name in row}}
        for row in text["fixes"]
    ]
    named = {"role": process_role.UNKNOWN, "rank": None, **_now(pid)}
    return named | {"pid": pid, "started": start, "host": socket.gethostname(), "activated": None, "fixes": rows}


class _Mapped(NamedTuple):
    """A record that a process maps: its own, or that of a process that it was forked from."""

    path: Path  # as the process has it: its container may call the folder otherwise
    own: bool
    removed: bool


def _records(pid: int) -> list[_Mapped]:
    """The records that a process maps; its own alone, if it has one."""
    names = [(name.removesuffix(_REMOVED), name.endswith(_REMOVED)) for name in sorted(_mapped(pid))]
    mapped = [(Path(name), removed) for name, removed in names if name.endswith(".attnfix")]
    own = [each for each in mapped if writer(each[0]) == _in_its_container(pid)]
    return [_Mapped(path, bool(own), removed) for path, removed in own or mapped]


def _elsewhere(record: _Mapped) -> bool:
    """Whether a record belongs to a deployment that keeps its records in another folder."""
    if record.removed:
        return record.path.parent not in places()
    return not any(os.path.exists(home / record.path.name) for home in places())


def _of_this_deployment(pid: int, alone: bool) -> bool:
    """Whether a process whose record lies elsewhere is of this deployment, but for a temporary folder of its own."""
    if not alone or _run_dir(_environment(pid) or {}) != _run_dir(os.environ):
        return False
    with suppress(OSError):
        in_sight = os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        return in_sight and _this_python(process_role.command_line(pid), _mapped(pid))
    return False


def _run_dir(environment: Mapping[str, str]) -> str:
    return environment.get("ATTNFIX_RUN_DIR", "")


def _told(pid: int, record: _Mapped, alone: bool) -> dict[str, Any] | None:
    """What a record says that a process maps. One that was removed, or lies in a temporary folder of the process's own, is read
    where the process holds it open."""
    elsewhere = _elsewhere(record)
    if elsewhere and not _of_this_deployment(pid, alone):
        return None
    if elsewhere or record.removed:
        return next(filter(None, map(read_open, _open(pid, record))), None)
    homes: list[Path] = []
    with suppress(OSError):
        homes = folders()
    return next(filter(None, (read(home / record.path.name) for home in homes)), None)


def _open(pid: int, record: _Mapped) -> Iterator[Path]:
    """Descriptors of a process to a record."""
    name = f"{record.path}{_REMOVED if record.removed else ''}"
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(descriptor) == name:
                    yield descriptor


def _uncalled(state: str) -> str:
    return INSTALLED if state == EFFECTIVE else state


def _others(recorded: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Python processes of this user that run, but not this one, and none of `recorded`: pid, start time.

    A process of a container names itself in its record as it is numbered there.
    """
    known = {*recorded, (os.getpid(), started(os.getpid()))}
    for pid in _own_pids():
        start = started(pid)
        if known.isdisjoint({(pid, start), (_in_its_container(pid), start)}) and runs(pid, start):
            yield pid, start


def _in_its_container(pid: int) -> int:
    """`pid` as the innermost namespace that the process is in numbers it."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])
    return pid


def _why(pid: int, start: int, since: float | None, loaded: bool = True, alone: bool = False) -> tuple[str, str]:
    environment = _environment(pid)
    if environment is not None:
        if switches.killed(environment):
            return OFF, "ATTNFIX=0"
        if (named := _run_dir(environment)) != _run_dir(os.environ):
            return ELSEWHERE, f"its records are in {named or 'the default folder'}"
    if records := _records(pid):
        return _unread(pid, records, alone)
    begun = _booted() + start / os.sysconf("SC_CLK_TCK")
    if since is not None and begun < since:
        return RESTART_NEEDED, "started before attnfix was installed"
    if time.time() - begun < (_STARTING_S if loaded else _IMPORTING_S):
        return STARTING, "its engine is not imported yet"
    return NO_RECORD, "attnfix could write none, or is not active in it: see its log"


def _unread(pid: int, records: list[_Mapped], alone: bool) -> tuple[str, str]:
    """Why the records that a process maps tell nothing (`by_mapping`)."""
    here = [record for record in records if not _elsewhere(record) or _of_this_deployment(pid, alone)]
    if not here:
        return ELSEWHERE, f"its records are in {records[0].path.parent}"
    if not here[0].removed:
        if any(-_CLOCKS_S < _age(home / here[0].path.name) < _WRITTEN_S for home in [*places(), here[0].path.parent]):
            return STARTING, "its record is being written"
        return NO_RECORD, "its record cannot be read"
    if here[0].own:
        return NO_RECORD, "its record was removed: restart it"
    return ACTIVE, "no fix was called in it yet, and the record of the process that it was forked from is gone"


def _age(path: Path) -> float:
    """Seconds since a file was written; endless where it is not there."""
    with suppress(OSError):
        return time.time() - path.lstat().st_mtime
    return math.inf


def _own_pids() -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == os.getuid() and os.path.basename(os.readlink(folder / "exe")).startswith("python"):
                yield int(folder.name)


def _loaded(pid: int, roots: Mapping[str, Path]) -> str | None:
    """The engine of `roots` of which a process maps a compiled module."""
    mapped = _mapped(pid)
    for name, root in roots.items():
        folders = tuple(f"{root.parent / package}/" for package in ENGINES[name].compiled)
        if any(path.startswith(folders) for path in mapped):
            return name
    return None


def _called(pid: int, command: list[str], roots: Mapping[str, Path]) -> str | None:
    """The engine of `roots` that a process is called after."""
    called = process_role.engine_titled(" ".join(command)) or process_role.engine_served_by(command)
    return called if called in roots and _this_python(command, _mapped(pid)) else None


def _this_python(command: list[str], mapped: set[str]) -> bool:
    """Whether a process runs in this Python's environment: another may hold another engine, and another attnfix."""
    sites = tuple(f"{os.path.realpath(entry)}/" for entry in sys.path if os.path.basename(entry).endswith("-packages"))
    return command[:1] == [sys.executable] or any(path.startswith(sites) for path in mapped)


def _mapped(pid: int) -> set[str]:
    """Files that a process has mapped."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        return {fields[5] for line in lines if len(fields := line.split(None, 5)) == 6}
    return set()


def _environment(pid: int) -> dict[str, str] | None:
    """attnfix's own switches in the environment that a process was started with; nothing else of it is kept.

    An engine that gives its process a title wipes the environment off /proc (tried): then its parent's, from which it came.
    None where there is none to be read.
    """
    while pid > 0:  # the first of a container is 1
        with suppress(OSError):
            entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").strip("\0").split("\0")
            if entries != [""]:
                return dict(entry.split("=", 1) for entry in entries if entry.startswith("ATTNFIX") and "=" in entry)
        pid = parent(pid)
    return None


def _installed_at() -> float | None:
    """When attnfix's `.pth` came here, in seconds since the epoch; None where there is none."""
    for entry in sys.path:
        with suppress(OSError):
            return (Path(entry) / "attnfix.pth").stat().st_ctime
    return None


def _booted() -> float:
    with suppress(OSError, ValueError, IndexError):
        return float(Path("/proc/stat").read_text().split("btime ")[1].split()[0])
    return 0.0
