"""Reading package indexes the way pip is set up to: pages of a project, whole archives, ranges of a remote wheel.

Imported on demand: requests and pypi_simple come with the extra `attnfix[cpu]`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pypi_simple
from packaging.version import InvalidVersion, Version
from urllib3.exceptions import HTTPError

from attnfix.compat.pip_session import PipSession, host_of, network
from attnfix.compat.pip_settings import PipSettings
from attnfix.compat.release_error import ReleaseError

MIB = 1 << 20
CHUNK = 1 << 16
TAIL = MIB  # read first of a remote wheel: it holds the table of contents of ~8000 files, and RECORD
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Archive:
    """One published file of a project. `sha256` and `size` (bytes) are None where the index does not give them."""

    filename: str
    url: str
    version: Version
    kind: str  # "wheel" | "sdist"
    sha256: str | None = None
    size: int | None = None


class Index:
    """All places where pip would look, in pip's order."""

    def __init__(self, settings: PipSettings) -> None:
        self.settings = settings
        self.session = PipSession(settings)

    def archives(self, project: str) -> tuple[list[list[Archive]], list[ReleaseError]]:
        """What each place holds of `project`, best place first, and what kept other places from answering."""
        found, failures = [_in_folder(folder, project) for folder in self.settings.find_links], []
        if not self.settings.no_index:
            default = self.settings.index_url or pypi_simple.PYPI_SIMPLE_ENDPOINT
            for url in (default, *self.settings.extra_index_urls):
                try:
                    found.append(self._page(url, project))
                except ReleaseError as error:
                    failures.append(error)
        return [place for place in found if place], failures

    def _page(self, url: str, project: str) -> list[Archive]:
        try:
            with network(url, self.settings):
                page = pypi_simple.PyPISimple(url, session=self.session).get_project_page(project)
        except pypi_simple.NoSuchProjectError:
            return []
        except (pypi_simple.UnsupportedContentTypeError, pypi_simple.UnsupportedRepoVersionError) as error:
            raise ReleaseError(f"{host_of(url)} does not answer as a package index does.") from error
        archives = []
        for file in page.packages:
            version = _version(file.version)
            if version is not None and file.package_type in {"wheel", "sdist"}:
                sha256 = file.digests.get("sha256")
                archives.append(Archive(file.filename, file.url, version, file.package_type, sha256, file.size))
        return archives

    def size(self, archive: Archive) -> int | None:
        """Size in bytes: the index's word, else the server's, else None."""
        if archive.size is not None:
            return archive.size
        with network(archive.url, self.settings):
            response = self.session.head(archive.url, allow_redirects=True, headers=_AS_STORED)
        length = response.headers.get("Content-Length", "") if response.ok else ""
        return int(length) if length.isdigit() else None

    def download(self, archive: Archive, to: Path, limit: int, advance: Advance) -> None:
        """Writes the whole archive to `to`; refuses more than `limit` bytes, or bytes that the index did not mean."""
        for left in reversed(range(self.settings.retries + 1)):
            digest, received = hashlib.sha256(), 0
            try:
                with to.open("wb") as file:
                    for chunk in self._read(archive.url, {}):
                        received += len(chunk)
                        if received > limit:
                            raise ReleaseError(f"{archive.filename} is larger than its {limit // MIB} MiB limit.")
                        digest.update(chunk)
                        file.write(chunk)
                        advance(len(chunk))
            except _Interrupted as error:
                advance(-received)
                if not left:
                    raise ReleaseError(str(error)) from error
                continue
            if archive.sha256 and digest.hexdigest() != archive.sha256.lower():
                raise ReleaseError(f"The sha256 of {archive.filename} is not the one that its index names.")
            return

    def _read(self, url: str, headers: dict[str, str]) -> Iterator[bytes]:
        with network(url, self.settings):
            response = self.session.get(url, stream=True, headers=_AS_STORED | headers)
            response.raise_for_status()
        with response:
            if headers and response.status_code != 206:  # the body would be the whole file: leave it unread
                name = url.rpartition("/")[2]
                raise ReleaseError(f"{host_of(url)} answers no range requests, and {name} is too large to fetch whole.")
            expected = response.headers.get("Content-Length", "")  # urllib3 1.x does not look whether all came
            received = 0
            try:
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    received += len(chunk)
                    yield chunk
            except (HTTPError, OSError) as error:
                raise _Interrupted(f"The connection to {host_of(url)} broke in the middle of a file.") from error
            if expected.isdigit() and received != int(expected):
                raise _Interrupted(f"{host_of(url)} ended a file before its announced length.")

    def read_range(self, url: str, start: int, stop: int, advance: Advance) -> bytes:
        """Bytes `start` to `stop` (exclusive) of a remote file."""
        for left in reversed(range(self.settings.retries + 1)):
            data = bytearray()
            try:
                for chunk in self._read(url, {"Range": f"bytes={start}-{stop - 1}"}):
                    data += chunk
                    advance(len(chunk))
                if len(data) != stop - start:
                    raise _Interrupted(f"{host_of(url)} sent other bytes than were asked for.")
            except _Interrupted as error:
                advance(-len(data))
                if not left:
                    raise ReleaseError(str(error)) from error
                continue
            return bytes(data)
        raise AssertionError("unreachable")


class RemoteFile(io.RawIOBase):
    """A remote file for `zipfile`, read in few large ranges: asking file by file takes minutes for an engine.

    `plan` says what will be read; a read outside the plan fetches what it needs and a little more. Held in memory are
    the end of the file and the range read last. `requests` and `received` (bytes) count what it took.
    """

    def __init__(self, index: Index, archive: Archive, size: int) -> None:
        self._index, self._archive, self._size = index, archive, size
        self._position = 0
        self._plan: list[tuple[int, int]] = []
        self.requests = self.received = 0
        self.advance: Advance = lambda count: None
        self._tail = self._last = self._load(max(0, size - TAIL), size)

    def plan(self, spans: list[tuple[int, int]], gap: int = MIB // 4, longest: int = 8 * MIB) -> int:
        """Merges (start, stop) spans that lie within `gap` bytes of each other; returns how many bytes will be read."""
        merged: list[tuple[int, int]] = []
        for start, stop in sorted(spans):
            if start >= self._tail[0]:
                continue
            if merged and start - merged[-1][1] <= gap and stop - merged[-1][0] <= longest:
                merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
            else:
                merged.append((start, stop))
        self._plan = merged
        return sum(stop - start for start, stop in merged)

    def _load(self, start: int, stop: int) -> tuple[int, bytes]:
        def count(received: int) -> None:
            self.received += received
            self.advance(received)

        self.requests += 1
        return start, self._index.read_range(self._archive.url, start, stop, count)

    def read(self, size: int = -1) -> bytes:
        start = self._position
        stop = self._size if size is None or size < 0 else min(start + size, self._size)
        if start >= stop:
            return b""
        held = [part for part in (self._tail, self._last) if part[0] <= start and stop <= part[0] + len(part[1])]
        if not held:
            planned = [span for span in self._plan if span[0] <= start and stop <= span[1]]
            self._last = self._load(*(planned or [(start, min(self._size, max(stop, start + CHUNK)))])[0])
            held = [self._last]
        offset, data = held[0]
        self._position = stop
        return data[start - offset : stop - offset]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


# Archives come as they are stored: a server that compresses them on the way would spoil sizes and checksums.
_AS_STORED = {"Accept-Encoding": "identity"}


class _Interrupted(Exception):
    """A body ended early; worth another try."""


def _in_folder(folder: str, project: str) -> list[Archive]:
    """A `find-links` folder. Pages given as find-links are not read."""
    path = Path(url2pathname(urlsplit(folder).path))
    if not folder.startswith("file:") or not path.is_dir():
        return []
    archives = []
    for file in sorted(path.iterdir()):
        try:
            name, text, kind = pypi_simple.parse_filename(file.name, project_hint=project)
        except pypi_simple.UnparsableFilenameError:
            continue
        version = _version(text)
        if name.lower() == project and kind in {"wheel", "sdist"} and version is not None and file.is_file():
            archives.append(Archive(file.name, file.resolve().as_uri(), version, kind, None, file.stat().st_size))
    return archives


def _version(text: str | None) -> Version | None:
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None
