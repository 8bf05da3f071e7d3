"""From an engine's wheel or source archive to what pip would have put into site-packages, less the compiled parts.

`<engine>/…` and `<engine>-<release>.dist-info/{METADATA,entry_points.txt,RECORD,INSTALLER}`.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import tarfile
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from .errors import ReleaseError

MAX_FILE = 2 << 20  # bytes; nothing larger in an engine's package is source
MAX_RECORD = 16 << 20
GAP = 256 << 10  # bytes between two files of a remote wheel that are read rather than asked around
MAX_PACKAGE = 512 << 20  # of all that is written for one release, five times the largest there is: an archive may claim little
COMPILED = re.compile(r"\.(so(\.\d+)*|a|o|py[cod]|dll|dylib|cubin|fatbin|hsaco)$")


def wheel_members(wheel: zipfile.ZipFile, engine: str) -> tuple[list[zipfile.ZipInfo], str]:
    """The entries to keep, in the order in which they are stored, and the name of the dist-info folder."""
    for name in wheel.namelist():
        _checked(name)
    folders = [name.split("/")[0] for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
    if len(folders) != 1:
        raise ReleaseError(f"The wheel of {engine} has no RECORD to check its files against.")
    dist_info = folders[0]
    kept = {f"{dist_info}/METADATA", f"{dist_info}/entry_points.txt"}
    entries = [info for info in wheel.infolist() if info.filename in kept or _is_source(info, engine)]
    return sorted(entries, key=lambda info: info.header_offset), dist_info


def ranges(wheel: zipfile.ZipFile, engine: str) -> dict[int, int]:
    """{start: length} of the bytes that hold RECORD, and of those that hold the entries to keep: neighbours are one range."""
    entries, dist_info = wheel_members(wheel, engine)
    # An entry ends at the latest where the next begins; its own header on disk may be longer than the table says.
    starts = sorted({info.header_offset for info in wheel.infolist()} | {wheel.start_dir})
    end = dict(pairwise(starts))
    record = wheel.getinfo(f"{dist_info}/RECORD").header_offset
    found, first = {record: end[record] - record}, None
    for start in (info.header_offset for info in entries):
        if first is None or start - (first + found[first]) > GAP:
            first = start
        found[first] = end[start] - first
    return found


def unpack_wheel(
    wheel: zipfile.ZipFile, engine: str, release: str, into: Path, advance: Callable[[int], None] = lambda count: None
) -> None:
    """Raises ReleaseError for a file that is not the one in the wheel's RECORD, or for a wheel without the engine.

    `advance` is told the compressed size of each file, in bytes.
    """
    entries, dist_info = wheel_members(wheel, engine)
    text = _limited(wheel, wheel.getinfo(f"{dist_info}/RECORD"), MAX_RECORD).decode()
    recorded = {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) >= 2}
    site = _Site(into, engine, release)
    for info in entries:
        data = _limited(wheel, info, MAX_FILE)
        expected = recorded.get(info.filename, "")
        if not expected or expected != digest(data, expected):
            raise ReleaseError(f"{info.filename} in the wheel of {engine} {release} does not match the wheel's RECORD.")
        site.add(_renamed(info.filename, dist_info, site.dist_info), data)
        advance(info.compress_size)
    site.close()


def unpack_sdist(path: Path, engine: str, release: str, into: Path) -> None:
    """Finds the engine's package wherever the archive keeps it. Raises ReleaseError where there is none."""
    site = _Site(into, engine, release)
    with tarfile.open(path, "r:*") as archive:
        members = [member for member in archive.getmembers() if _checked(member.name) and member.isfile()]
        # The shallowest one: test data and vendored copies lie deeper.
        inits = [member.name for member in members if member.name.endswith(f"/{engine}/__init__.py")]
        root = min(inits, key=lambda name: name.count("/"), default="/").rpartition("/")[0]
        metadata = _shallowest(members, "PKG-INFO")
        entry_points = _shallowest(members, f"{engine}.egg-info/entry_points.txt")
        for member in members:
            if member.name == metadata:
                name = f"{site.dist_info}/METADATA"
            elif member.name == entry_points:
                name = f"{site.dist_info}/entry_points.txt"
            elif root and member.name.startswith(f"{root}/") and _keep(member.name, member.size):
                name = engine + member.name.removeprefix(root)
            else:
                continue
            file = archive.extractfile(member)
            assert file is not None  # a regular file, asked above
            site.add(name, file.read())
    site.close()


class _Site:
    """The folder being filled, and its RECORD."""

    def __init__(self, folder: Path, engine: str, release: str) -> None:
        self.folder, self.engine, self.release = folder, engine, release
        self.dist_info = f"{engine}-{release}.dist-info"
        self._rows: list[tuple[str, str, str]] = []
        self._room = MAX_PACKAGE

    def add(self, name: str, data: bytes) -> None:
        path = self.folder / _checked(name)
        self._room -= len(data)
        if self._room < 0:
            raise ReleaseError(f"The archive of {self.engine} {self.release} holds more than {MAX_PACKAGE >> 20} MiB.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self._rows.append((name, digest(data), str(len(data))))

    def close(self) -> None:
        if not (self.folder / self.engine / "__init__.py").is_file():
            raise ReleaseError(f"The archive of {self.engine} {self.release} holds no package {self.engine}.")
        if not (self.folder / self.dist_info / "METADATA").is_file():
            raise ReleaseError(f"The archive of {self.engine} {self.release} holds no metadata.")
        self.add(f"{self.dist_info}/INSTALLER", b"attnfix\n")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*self._rows, (f"{self.dist_info}/RECORD", "", "")])
        (self.folder / self.dist_info / "RECORD").write_text(text.getvalue(), encoding="utf-8")


def _is_source(info: zipfile.ZipInfo, engine: str) -> bool:
    return info.filename.startswith(f"{engine}/") and not info.is_dir() and _keep(info.filename, info.file_size)


def _keep(name: str, size: int) -> bool:
    return size <= MAX_FILE and not COMPILED.search(name)


def _shallowest(members: list[tarfile.TarInfo], end: str) -> str | None:
    names = [member.name for member in members if member.name.endswith(f"/{end}") and member.size <= MAX_FILE]
    return min(names, key=lambda name: name.count("/"), default=None)


def _limited(wheel: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    with wheel.open(info) as file:
        data = file.read(limit + 1)  # the table's size is only a claim
    if len(data) > limit:
        raise ReleaseError(f"{info.filename} is larger than {limit >> 20} MiB.")
    return data


def digest(data: bytes, like: str = "sha256=") -> str:
    """RECORD's way to write a digest, by the algorithm of `like`; empty for one that is unknown or too weak."""
    algorithm = like.partition("=")[0]
    if algorithm not in {"sha256", "sha384", "sha512"}:
        return ""
    return f"{algorithm}=" + base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).rstrip(b"=").decode()


def _renamed(name: str, old: str, new: str) -> str:
    return new + name.removeprefix(old) if name.startswith(f"{old}/") else name


def _checked(name: str) -> str:
    """`name`, if it stays below the folder that it is unpacked into. One that does not spoils the whole archive."""
    if not name or "\\" in name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
        raise ReleaseError(f"The archive holds a file with an unsafe path ({name!r}).")
    return name
