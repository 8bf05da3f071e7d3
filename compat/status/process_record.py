"""One small memory-mapped record per process, so that another process can see what is patched here and whether it fired.

Engines kill their children and exit handlers never run, so the record is always up to date: counters are plain stores into
the mapping, and the text is rewritten when a state changes. A reader takes what is there; a torn text reads as no record.

    offset 0      "attnfix1", then the length of the text as a little-endian 64-bit integer
    offset 64     counters, three 64-bit integers for each fix in the order of "fixes" in the text
    offset 8192   the text: JSON
    offset 131072 what was observed (ATTNFIX=observe), two 64-bit integers for each fix in the same order

Its process holds a lock (flock) on it for life: the kernel lets it go however the process ends. So a reader in another
container, to whom pid and host name mean nothing, still knows who is alive. Where the file system has no locks, pid and start
time tell it on the same host. Not seen: a network volume mounted with host-local locks (`nolock`) shows other hosts as ended.

Somebody else may have made the folder, or placed files in it. Which users are trusted: docs/decisions/0018-process-records.md.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import re
import secrets
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from .. import untrusted
from . import process_role
from .fix_state import MISSING

MAGIC = b"attnfix1"
_COUNTERS, _TEXT, _OBSERVED = 64, 1 << 13, 1 << 17
_SIZE = _OBSERVED + (1 << 13)
_LIMIT = 1 << 20  # bytes that a reader takes: another version's records may be larger than ours
_KEPT_S = 24 * 3600  # records of processes that have ended stay this long
_FIELDS = ("calls", "corrections", "rows")
_NONE = type(None)
_MAY_LACK: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("release", "role", "rank", "attnfix", "fixset"), (str, _NONE)),
    "activated": (int, float, _NONE),
}
_KERNELS = 100  # in a record, at most
_NAME = 200  # letters of a name in it
_TIDIED = 64  # records that a process looks at when it takes its own
_LOOKS = 5  # at a text that is just being written


def folder() -> Path:
    """Folder of the records: $ATTNFIX_RUN_DIR, else one of this user's own under the temporary folder.

    Not $XDG_RUNTIME_DIR: a login shell has one and a service has none, and they would look past each other.
    """
    named = os.environ.get("ATTNFIX_RUN_DIR")
    if named:
        return Path(named)
    import tempfile

    try:
        return Path(tempfile.gettempdir()) / _of(os.getuid())
    except FileNotFoundError:  # nothing can be written: to make the folder fails, in a sentence that names it
        return Path("/tmp") / _of(os.getuid())  # nosec B108


def _of(user: int) -> str:
    return f"attnfix-{user}"


def _own_folder() -> Path:
    """`folder`, made if need be; in a named folder of another user, as a pod's emptyDir, a subfolder of our own. Raises OSError
    where it is not safely ours."""
    home = folder()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _named():
        if (owner := home.stat().st_uid) == os.getuid():
            return home  # whoever else may write there is the operator's business
        try:
            (home := home / _of(os.getuid())).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise PermissionError(
                f"{home.parent} belongs to {user(owner)}, and this is {user(os.getuid())}: {error}"
            ) from error
    if fault := _fault(home):
        raise PermissionError(f"{home} {fault}")
    return home


def _named() -> bool:
    return bool(os.environ.get("ATTNFIX_RUN_DIR"))


def user(number: int) -> str:
    """A user as sentences call it."""
    return f"user {number}" if number else "root"


def _fault(home: Path) -> str | None:
    """Why records are neither left in nor read from a folder that another user may have made first."""
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o022:
        return "is a link or can be written by others"
    if found.st_uid != os.getuid():
        return f"belongs to another user: it is {user(found.st_uid)}'s, and this is {user(os.getuid())}"
    return None


def refused() -> str | None:
    """Why no record is read here, where somebody else may have made the folder; None where all is well."""
    if _named() and os.path.lexists(folder()) and not os.path.isdir(folder()):
        return f"records are not read: {folder()} is no folder"
    home = folder() / _of(os.getuid()) if _named() else folder()
    try:
        fault = _fault(home)
    except OSError:
        return None
    return f"records are not read: {home} {fault}" if fault else None


def unseen() -> str:
    """Where records were looked for, and as whom: for whoever finds none."""
    if fault := refused():
        return fault
    home = folder()
    try:
        owner = home.stat().st_uid
        others = {name for name in os.listdir(home) if re.fullmatch(r"attnfix-\d{1,10}", name)} - set(map(_of, _owners()))
    except OSError as error:
        return f"no record in {home}: {error.strerror or error}"
    told = f"no record in {home}, which belongs to {user(owner)}, for {user(os.getuid())}"
    return told + (f"; others have theirs in {', '.join(sorted(others)[:3])}" if others else "")


def folders() -> list[Path]:
    """Where records are read: the folder, and in one that was named those of the users whose records are believed. Raises
    OSError where there is no folder."""
    home = folder()
    if not _named():
        return [] if refused() else [home]
    return [home, *(home / name for name in map(_of, sorted(_owners())) if _safe(home / name))]


def places() -> list[Path]:
    """Folders in which records of ours may lie, as /proc calls them: also one that is not read, or is gone."""
    found = [folder(), folder() / _of(os.getuid())]
    with suppress(OSError):
        found += folders()
    return [Path(os.path.realpath(home)) for home in found]


def _safe(home: Path) -> bool:
    """Whether a subfolder is its user's alone, so that nobody else can have placed a record there."""
    try:
        found = home.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o022 and _of(found.st_uid) == home.name


def _owners() -> frozenset[int]:
    """Whose records are believed: this user's, root's and, in a folder that was named, its owner's, who could replace any of
    them. Raises OSError where there is no folder."""
    return untrusted.trusted(folder().stat().st_uid) if _named() else untrusted.trusted()


class MappedCounters(ctypes.Structure):
    """Counters of one fix in the mapping; a plain store each, no call into the kernel."""

    _fields_ = tuple((name, ctypes.c_int64) for name in _FIELDS)
    calls: int
    corrections: int
    rows: int


class MappedLooks(ctypes.Structure):
    """The same of its looks."""

    _fields_ = (("calls", ctypes.c_int64), ("needed", ctypes.c_int64))
    calls: int
    needed: int


class Record:
    """The record of this process. Raises OSError where the folder cannot be used: the caller then does without.

    `unlocked` says why its life cannot be told by a lock; None where it can.
    """

    def __init__(self) -> None:
        home = _own_folder()
        _forget_ended(home)
        # Containers may share host name and pid: chance makes the name unique
        self.path = home / f"{own_prefix()}{secrets.token_hex(4)}.attnfix"
        unborn = self.path.with_suffix(".new")  # nobody reads it, or tries its lock, before it is locked
        descriptor = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)  # a full disk must fail here, not as SIGBUS at a store
            self._map = mmap.mmap(descriptor, _SIZE)
            self._map[: len(MAGIC)] = MAGIC
            self._lock(unborn, _identity(descriptor))
            unborn.rename(self.path)
        except OSError:
            unborn.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def _lock(self, path: Path, identity: tuple[int, int]) -> None:
        """Lock the file by an opening of its own: a forked child keeps the one that is mapped open, and a lock with it."""
        self.unlocked: str | None = None
        self._locked = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._identity = identity
        if _identity(self._locked) != identity:
            os.close(self._locked)
            raise PermissionError(f"{path} was replaced by somebody else")
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.unlocked = str(error)

    def leave_to_parent(self) -> None:
        """In a forked child: close the parent's lock, which the child shares. Never unlock it: that frees the parent's, too."""
        with suppress(OSError):
            if _identity(self._locked) == self._identity:  # a program that closed all descriptors has given the number away
                os.close(self._locked)

    def counters(self, index: int) -> MappedCounters:
        """Those of the fix at `index` of "fixes" in the text. Raises ValueError where there is no room for them."""
        begin = _COUNTERS + index * ctypes.sizeof(MappedCounters)
        if begin + ctypes.sizeof(MappedCounters) > _TEXT:
            raise ValueError(f"a record has no room for the counters of {index + 1} fixes")
        return MappedCounters.from_buffer(self._map, begin)

    def looks(self, index: int) -> MappedLooks:
        """The same of what is observed."""
        begin = _OBSERVED + index * ctypes.sizeof(MappedLooks)
        if begin + ctypes.sizeof(MappedLooks) > _SIZE:
            raise ValueError(f"a record has no room for what is observed of {index + 1} fixes")
        return MappedLooks.from_buffer(self._map, begin)

    def write(self, text: dict[str, Any]) -> None:
        """Replace the text. Its length is 0 while it is being written."""
        text = {**text, "locked": self.unlocked is None}
        data = json.dumps(text).encode()
        if len(data) > _OBSERVED - _TEXT:
            rows = [{**row, "traceback": None, "reason": row["reason"][:200]} for row in text["fixes"]]
            data = json.dumps({**text, "fixes": rows}).encode()
        self._map[8:16] = struct.pack("<q", 0)
        self._map[_TEXT : _TEXT + len(data)] = data
        self._map[8:16] = struct.pack("<q", len(data))
        with suppress(OSError):
            os.utime(self.path, follow_symlinks=False)  # a store into a mapping does not, on every file system


def own_prefix() -> str:
    """How the names of this process's records begin."""
    return f"{socket.gethostname()}-{os.getpid()}-"


def writer(path: Path) -> int | None:
    """The process that a record is named after, as its container numbers it."""
    parts = path.name.rsplit("-", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else None


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


# Who is alive


def _forget_ended(home: Path) -> None:
    """Remove records of processes that have ended, whoever's host they ran on: old ones, and those that tell of nothing.

    Engines restart, and files pile up. A few at a time, from anywhere in the folder: a start does not wait for thousands.
    """
    names = [name for name in os.listdir(home) if name.endswith((".attnfix", ".new"))]
    at = secrets.randbelow(len(names)) if names else 0
    for path in map(home.joinpath, (*names[at:], *names[:at])[:_TIDIED]):
        with suppress(OSError):
            old = time.time() - path.lstat().st_mtime > _KEPT_S
            if not old and path.suffix == ".new":
                continue
            with _opened(path) as descriptor:
                ended = _over(descriptor) if old else not _held(descriptor) and _tells_nothing(descriptor)
            if ended:
                path.unlink()


def _over(descriptor: int) -> bool:
    return not _alive(descriptor, _text(descriptor) or {})


def _tells_nothing(descriptor: int) -> bool:
    """Whether a process that has ended corrected nothing, and had nothing to complain of."""
    text = _text(descriptor)
    if text is None or not text.get("locked", True):
        return False
    return not any(
        row["counters"]["corrections"] or row.get("observed", {}).get("needed") or row["state"] in MISSING
        for row in text["fixes"]
    )


def _opened(path: Path) -> AbstractContextManager[int]:
    """A descriptor of a record, ours or another's. Raises OSError for what is none, or nobody's whom we believe."""
    return untrusted.opened(path, _LIMIT, owners=_owners())


def _alive(descriptor: int, text: dict[str, Any]) -> bool:
    """Whether the process of a record lives. Without a lock, and on another host, nothing can tell: it is taken to live."""
    if text.get("locked", True):
        with suppress(OSError):
            return _held(descriptor)
    return text.get("host") != socket.gethostname() or runs(text["pid"], text["started"])


def _held(descriptor: int) -> bool:
    """Whether somebody holds the lock. Raises OSError where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def started(pid: int) -> int:
    """Start time of a process in clock ticks since boot (Linux), 0 where it cannot be read: tells a reused pid apart."""
    try:
        return int(_stat(pid)[19])
    except (OSError, ValueError, IndexError):
        return 0


def parent(pid: int) -> int:
    """The process that started this one, 0 where it cannot be read."""
    try:
        return int(_stat(pid)[1])
    except (OSError, ValueError, IndexError):
        return 0


def runs(pid: int, start: int) -> bool:
    """Whether that very process runs on this host: it has not ended, not even as one that nobody has waited for."""
    try:
        return int(_stat(pid)[19]) == start and _stat(pid)[0] not in "ZX"
    except (OSError, ValueError, IndexError):
        return False


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


# What a reader sees


def of_server(server: str) -> Iterator[dict[str, Any]]:
    """Records of this process and of its relatives in a server: what it descends from, and their other children. Raises OSError
    where there is no folder. No other record is read, however many there are."""
    line = [pid := os.getpid()]
    while pid := parent(pid):
        line.append(pid)
    host = socket.gethostname()
    for home in folders():
        for name in os.listdir(home):
            writer_ = writer(home / name)
            if writer_ is None or not name.startswith(f"{host}-{writer_}-") or not name.endswith(".attnfix"):
                continue
            text = read(home / name) if writer_ in line or parent(writer_) in line else None
            if text and text.get("server") == server and runs(text["pid"], text["started"]):
                yield text


def read(path: Path) -> dict[str, Any] | None:
    """Text of one record with its counters filled in, or None if it is torn or not ours."""
    with suppress(OSError), _opened(path) as descriptor:
        return _text(descriptor)
    return None


def read_open(descriptor: Path) -> dict[str, Any] | None:
    """`read` of a record that was removed, by a descriptor under /proc of a process of this user that holds it open."""
    with suppress(OSError), untrusted.opened(descriptor, _LIMIT, owners=untrusted.trusted(), follow=True) as opened:
        return _text(opened)
    return None


def _text(descriptor: int) -> dict[str, Any] | None:
    for _ in range(_LOOKS):
        data = untrusted.content(descriptor, _LIMIT)
        if data[:8] != MAGIC:
            return None
        try:
            return _parsed(data)
        except (ValueError, KeyError, TypeError, struct.error):
            time.sleep(0.002)
    return None


def _parsed(data: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<q", data, 8)
    text = {**dict.fromkeys(_MAY_LACK), "kernels": {}, **untrusted.parsed(data[_TEXT : _TEXT + length])}
    _check(text, pid=int, started=int, host=str, engine=str, fixes=list, kernels=dict, **_MAY_LACK)
    _name(text, "host", "engine", "release", "role", "rank", "attnfix", "fixset")
    if len(text["fixes"]) > (_TEXT - _COUNTERS) // ctypes.sizeof(MappedCounters) or len(text["kernels"]) > _KERNELS:
        raise ValueError("more than a record has room for")
    for told in text["kernels"].values():
        _check(told, path=str)
    for index, row in enumerate(text["fixes"]):
        _check(row, fix=str, state=str, reason=str)
        _name(row, "fix", "state")
        counters = struct.unpack_from("<3q", data, _COUNTERS + index * 24)
        row["counters"] = dict(zip(_FIELDS, counters))
        if row.get("observable") is True:
            row["observed"] = dict(zip(("calls", "needed"), struct.unpack_from("<2q", data, _OBSERVED + index * 16)))
        else:
            row.pop("observed", None)
        if row["state"] == "installed" and counters[0]:
            row["state"] = "effective"
    return text


def _name(found: dict[str, Any], *names: str) -> None:
    """Make these one printable line each: they go into sentences, tables and labels."""
    for name in names:
        if found[name] is not None:
            found[name] = untrusted.line(found[name][:_NAME])


def _check(found: dict[str, Any], **kinds: type | tuple[type, ...]) -> None:
    """Raises KeyError or TypeError where `found` is not of this form: another version of attnfix may have written it."""
    for name, kind in kinds.items():
        if not isinstance(found[name], kind):
            raise TypeError(name)


def read_all() -> Iterator[dict[str, Any]]:
    """Every readable record in the folder, each with `alive`: False for a process that has ended. None where `refused`."""
    for path in sorted(paths()):
        if text := seen(Path(path)):
            yield text | _called_now(text)


def paths() -> list[str]:
    """Every file in the folders that is called as a record is."""
    found = []
    with suppress(OSError):
        for home in map(str, folders()):
            with suppress(OSError):
                found += [f"{home}/{name}" for name in os.listdir(home) if name.endswith(".attnfix")]
    return found


def seen(path: Path) -> dict[str, Any] | None:
    """`read`, with `alive`."""
    with suppress(OSError), _opened(path) as descriptor:
        if text := _text(descriptor):
            return text | {"alive": _alive(descriptor, text)}
    return None


def _called_now(text: dict[str, Any]) -> dict[str, Any]:
    """Role and rank from the title that a process of this host has now: engines set it when most modules are loaded."""
    if text["alive"] and text["host"] == socket.gethostname() and runs(text["pid"], text["started"]):
        role = process_role.of_title(process_role.title(text["pid"]))
        if role.name != process_role.UNKNOWN:
            return {"role": untrusted.line(role.name), "rank": role.rank or text.get("rank")}
    return {}
