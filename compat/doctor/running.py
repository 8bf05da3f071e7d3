"""The engine servers that run on this machine, as /proc tells: launch line, environment, folders (Linux)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..status import process_role
from ..status.process_record import parent

_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.I)
_SITE = re.compile(r"(/\S+?-packages)/")


class Server(NamedTuple):
    """One server. `environment` leaves out variables whose name speaks of a secret. `root` is the root folder of its container,
    `cwd` its working directory; both are paths of this process."""

    pid: int
    command: list[str]
    environment: Mapping[str, str]
    root: Path
    cwd: Path

    def path(self, text: str) -> Path:
        """A path as the server has it."""
        return self.root / text.lstrip("/") if text.startswith("/") else self.cwd / text

    def package(self, engine: str) -> Path | None:
        """Folder of the engine's package in the server's own Python; None where it was not found."""
        for folder in self._folders():
            if (folder / engine / "__init__.py").is_file():
                return folder / engine
        return None

    def _folders(self) -> Iterator[Path]:
        """Where its Python may import from: PYTHONPATH, folders of packages that it has mapped, those beside its program."""
        for entry in self.environment.get("PYTHONPATH", "").split(os.pathsep):
            if entry:
                yield self.path(entry)
        with suppress(OSError):
            maps = Path(f"/proc/{self.pid}/maps").read_text(errors="replace")
            yield from map(self.path, dict.fromkeys(_SITE.findall(maps)))
        if self.command[0].startswith("/"):
            yield from self.path(self.command[0]).parent.parent.glob("lib*/python3*/*-packages")

    def hub(self, download_folder: str | None = None) -> Path:
        """Folder of its Hugging Face hub cache."""
        home = self.environment.get("HF_HOME") or f"{self.environment.get('HOME', '/root')}/.cache/huggingface"
        return self.path(download_folder or self.environment.get("HF_HUB_CACHE") or f"{home}/hub")


def servers() -> tuple[list[Server], list[int]]:
    """Running servers, and the pids of those whose environment or folders this user may not read."""
    lines = {pid: process_role.command_line(pid) for pid in _pids()}
    called = {pid: line for pid, line in lines.items() if process_role.engine_served_by(line)}
    found, unread = list[Server](), list[int]()
    for pid, line in called.items():
        if called.get(parent(pid)) == line:  # a child that was forked, and has set no title
            continue
        try:
            found.append(_server(pid, line))
        except ProcessLookupError:  # it has ended
            continue
        except OSError:
            unread.append(pid)
    return found, unread


def _pids() -> list[int]:
    return sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*"))


def _server(pid: int, command: list[str]) -> Server:
    """Raises OSError for a process of another user, or one that has ended."""
    proc = Path(f"/proc/{pid}")
    entries = (proc / "environ").read_bytes().decode(errors="replace").split("\0")
    pairs = (entry.split("=", 1) for entry in entries if "=" in entry)
    environment = {name: value for name, value in pairs if not _SECRET.search(name)}
    together = os.readlink(proc / "ns/mnt") == os.readlink("/proc/self/ns/mnt")
    root = Path("/") if together else proc / "root"
    return Server(pid, command, environment, root, root / os.readlink(proc / "cwd").lstrip("/"))
