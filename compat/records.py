"""One small memory-mapped record per process, so that another process can see what is patched here and whether it fired.

Engines kill their children and exit handlers never run, so the record is always up to date: counters are plain stores into
the mapping, and the text is rewritten when a state changes. A reader takes what is there; a torn text reads as no record.

    offset 0      "attnfix1", then the length of the text as a little-endian 64-bit integer
    offset 64     counters, three 64-bit integers for each fix in the order of "fixes" in the text
    offset 4096   the text: JSON
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

MAGIC = b"attnfix1"
_COUNTERS, _TEXT, _SIZE = 64, 4096, 1 << 15
_KEPT_S = 24 * 3600  # records of processes that have ended stay this long
_FIELDS = ("calls", "corrections", "rows")


def folder() -> Path:
    """Folder of the records: $ATTNFIX_RUN_DIR, else one of this user's own under the temporary folder.

    Not $XDG_RUNTIME_DIR: a login shell has one and a service has none, and they would look past each other.
    """
    named = os.environ.get("ATTNFIX_RUN_DIR")
    if named:
        return Path(named)
    import tempfile

    return Path(tempfile.gettempdir()) / f"attnfix-{os.getuid()}"


def _own_folder() -> Path:
    """`folder`, made if need be. Raises OSError where it is not safely ours."""
    home = folder()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = home.lstat()
    if not os.environ.get("ATTNFIX_RUN_DIR") and (not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o022):
        raise PermissionError(f"{home} is a link or can be written by others")
    if found.st_uid != os.getuid():
        raise PermissionError(f"{home} belongs to another user")
    return home


def _slot(offset: int) -> property:
    def read(self: MappedCounters) -> int:
        return self._slots[self._start + offset]

    def write(self: MappedCounters, value: int) -> None:
        self._slots[self._start + offset] = value

    return property(read, write)


class MappedCounters:
    """Counters of one fix in the mapping; a plain store each, no call into the kernel."""

    __slots__ = ("_slots", "_start")

    calls, corrections, rows = map(_slot, range(len(_FIELDS)))

    def __init__(self, slots: memoryview, start: int):
        self._slots, self._start = slots, start


class Record:
    """The record of this process. Raises OSError where the folder cannot be used: the caller then does without."""

    def __init__(self, fixes: int):
        if _COUNTERS + fixes * len(_FIELDS) * 8 > _TEXT:
            raise ValueError(f"a record has no room for the counters of {fixes} fixes")
        home = _own_folder()
        _forget_ended(home)
        self.path = home / f"{socket.gethostname()}-{os.getpid()}-{started(os.getpid())}.attnfix"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)  # a full disk must fail here, not as SIGBUS at a store
            self._map = mmap.mmap(descriptor, _SIZE)
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._slots = memoryview(self._map)[_COUNTERS:_TEXT].cast("q")
        self._map[: len(MAGIC)] = MAGIC

    def counters(self, index: int) -> MappedCounters:
        return MappedCounters(self._slots, index * len(_FIELDS))

    def write(self, text: dict[str, Any]) -> None:
        """Replace the text. Its length is 0 while it is being written."""
        data = json.dumps(text).encode()
        if len(data) > _SIZE - _TEXT:
            data = json.dumps({**text, "fixes": [{**row, "traceback": None} for row in text["fixes"]]}).encode()
        self._map[8:16] = struct.pack("<q", 0)
        self._map[_TEXT : _TEXT + len(data)] = data
        self._map[8:16] = struct.pack("<q", len(data))


def _forget_ended(home: Path) -> None:
    """Remove old records of processes of this host that have ended: engines restart, and their files would pile up."""
    for path in home.glob(f"{socket.gethostname()}-*.attnfix"):
        with suppress(OSError, ValueError):
            pid, start = map(int, path.stem.rsplit("-", 2)[1:])
            if started(pid) != start and time.time() - path.stat().st_mtime > _KEPT_S:
                path.unlink()


def started(pid: int) -> int:
    """Start time of a process in clock ticks since boot (Linux), 0 where it cannot be read: tells a reused pid apart."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def read(path: Path) -> dict[str, Any] | None:
    """Text of one record with its counters filled in, or None if it is torn or not ours."""
    try:
        data = path.read_bytes()
        if data[:8] != MAGIC:
            return None
        (length,) = struct.unpack_from("<q", data, 8)
        text = json.loads(data[_TEXT : _TEXT + length])
        for index, row in enumerate(text["fixes"]):
            counters = struct.unpack_from("<3q", data, _COUNTERS + index * 24)
            row["counters"] = dict(zip(_FIELDS, counters))
            if row["state"] == "installed" and counters[0]:
                row["state"] = "effective"
        return text
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None


def read_all() -> Iterator[dict[str, Any]]:
    """Every readable record in the folder, each with `alive`: False for a process of this host that has ended."""
    try:
        paths = sorted(folder().glob("*.attnfix"))
    except OSError:
        return
    here = socket.gethostname()
    for path in paths:
        text = read(path)
        if text is not None:
            text["alive"] = text["host"] != here or (started(text["pid"]) or None) == text["started"]
            yield text


def describe(engine: str, version: str | None, fixes: list[dict[str, Any]]) -> dict[str, Any]:
    """Text of this process's record."""
    pid = os.getpid()
    return {
        "pid": pid,
        "started": started(pid),
        "host": socket.gethostname(),
        "argv": sys.argv[:1],
        "rank": os.environ.get("RANK"),
        "engine": engine,
        "release": version,
        "fixes": fixes,
    }
