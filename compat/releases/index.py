"""Reading package indexes the way pip is set up to: pages of a project, whole archives, ranges of a remote wheel.

Imported on demand: requests, pypi_simple and remotezip come with the extra `attnfix[cpu]`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pypi_simple
import requests
from packaging.version import InvalidVersion, Version
from remotezip import RangeNotSupported, RemoteFetcher, RemoteIO, RemoteZipError
from urllib3.exceptions import HTTPError

from .errors import Interrupted, ReleaseError
from .pip_config import PipSettings
from .pip_session import PipSession, host_of, network

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
                    for chunk in self._read(archive.url):
                        received += len(chunk)
                        if received > limit:
                            raise ReleaseError(f"{archive.filename} is larger than its {limit // MIB} MiB limit.")
                        digest.update(chunk)
                        file.write(chunk)
                        advance(len(chunk))
            except Interrupted:
                advance(-received)
                if not left:
                    raise
                continue
            if archive.sha256 and digest.hexdigest() != archive.sha256.lower():
                raise ReleaseError(f"The sha256 of {archive.filename} is not the one that its index names.")
            return

    def _read(self, url: str) -> Iterator[bytes]:
        with self.get(url, stream=True, headers=_AS_STORED) as response:
            expected = response.headers.get("Content-Length", "")  # urllib3 1.x does not look whether all came
            received = 0
            try:
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    received += len(chunk)
                    yield chunk
            except (HTTPError, OSError) as error:
                raise Interrupted(f"The connection to {host_of(url)} broke in the middle of a file.") from error
            if expected.isdigit() and received != int(expected):
                raise Interrupted(f"{host_of(url)} ended a file before its announced length.")

    @contextmanager
    def open_remote(self, archive: Archive, size: int) -> Iterator[RemoteIO]:
        """A remote file of `size` bytes for `zipfile`. Its last MiB comes in one request: it holds a wheel's table of contents.

        `set_position_to_size` says in which ranges the rest is read. Reading raises ReleaseError.
        """
        try:
            fetcher = _Fetcher(archive.url, self, size)
            with RemoteIO(fetcher.fetch, TAIL) as remote:
                yield remote
        except RangeNotSupported as error:
            raise ReleaseError(
                f"{host_of(archive.url)} answers no range requests, and {archive.filename} is too large to fetch whole."
            ) from error
        except (RemoteZipError, HTTPError) as error:
            raise Interrupted(f"{host_of(archive.url)} sent other bytes than were asked for, or fewer.") from error

    def get(self, url: str, **kwargs: Any) -> requests.Response:
        with network(url, self.settings):
            response = self.session.get(url, **kwargs)
            response.raise_for_status()
        return response


# Archives come as they are stored: a server that compresses them on the way would spoil sizes and checksums.
_AS_STORED = {"Accept-Encoding": "identity"}


class _Fetcher(RemoteFetcher):  # type: ignore[misc]  # remotezip has no types
    """Ranges of a file whose size is known: some servers that answer them refuse HEAD, by which remotezip would ask for it."""

    def __init__(self, url: str, index: Index, size: int):
        super().__init__(url, index, support_suffix_range=False, headers=_AS_STORED)
        self._size = size

    def get_file_size(self) -> int:
        return self._size

    def _request(self, kwargs: dict[str, Any]) -> tuple[Any, str]:
        response = self._session.get(self._url, stream=True, **kwargs)
        if "Content-Range" not in response.headers:
            response.close()  # the body would be the whole file: it is left unread
            raise RangeNotSupported(self._url)
        return response.raw, response.headers["Content-Range"]


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
