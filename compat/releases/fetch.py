"""Published engine releases, fetched by name and laid out as pip would: never built, never a whole large wheel.

    published("sglang")                 every release, oldest first
    fetch("sglang", "0.5.10.post1")     a folder to put on sys.path

Where to look and how to get there is pip's business: its index, proxy and certificate settings are ours too.
"""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from .. import untrusted
from ..engines import ENGINES
from . import pip_config, unpack
from .cache import LAYOUT, SOURCE, Spoilt, check, check_cache
from .errors import Interrupted, MissingExtra, ReleaseError

if TYPE_CHECKING:
    from .index import Archive, Index

__all__ = ["MissingExtra", "ReleaseError", "fetch", "published"]

SMALL = 64 << 20  # bytes; an archive below this is fetched whole
STALE = 24 * 3600  # seconds, after which what an interrupted fetch left is thrown away
# RuntimeError: zipfile's word for an encrypted file or an unknown compression.
DAMAGED = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, UnicodeError, RuntimeError)
log = logging.getLogger("attnfix.releases")


def published(engine: str) -> list[Version]:
    """Releases of `engine`, oldest first: no pre-releases; yanked ones too, since they are still installed by name.

    The index is asked once per process. Raises ReleaseError (unknown engine, no network, missing extra).
    """
    _known(engine)
    places, failures = _places(engine)
    if failures and not places:
        raise failures[0]
    return _stable(places)


def fetch(engine: str, release: str, *, progress: bool | None = None) -> Path:
    """A folder laid out as site-packages that holds the Python files of `engine` at `release`, and its dist-info.

    Taken from the cache, without any network access, where it lies there as it was fetched. Else from a wheel or, failing that,
    a source archive below 64 MiB; else the files alone are read out of the large remote wheel by range requests. Archives are
    checked against the index's sha256, the files of a wheel against its RECORD; `SOURCE.json` in the folder says what
    it was made of. `progress` shows a bar on stderr; None: where that is a terminal.

    Raises ReleaseError, whose message is one sentence for a user, and leaves nothing behind.
    """
    version = _version(engine, release)
    folder = _cache_folder() / f"{engine}-{version}"
    if folder in _whole or _in_cache(folder):
        return folder
    with _disk(folder.parent), _work_folder(folder) as work:
        _unpack(engine, version, work, sys.stderr.isatty() if progress is None else progress)
        _settle(work / "site", folder)
    _whole.add(folder)
    return folder


def _unpack(engine: str, version: Version, work: Path, progress: bool) -> None:
    """Fills `work / "site"`."""
    archives = _archives(engine, version)
    index = _index()
    archive, kind, size = _choose(index, archives)
    log.debug("%s %s: %s, %d bytes, by %s", engine, version, archive.filename, size, kind)
    site = work / "site"
    site.mkdir()
    try:
        if kind == "ranges":
            _unpack_ranges(index, archive, size, engine, version, site, progress)
        else:
            path = work / "archive"
            with _bar(f"{engine} {version}", size, progress) as advance:
                index.download(archive, path, SMALL, advance)
            if kind == "wheel":
                with zipfile.ZipFile(path) as wheel:
                    unpack.unpack_wheel(wheel, engine, str(version), site)
            else:
                unpack.unpack_sdist(path, engine, str(version), site)
    except DAMAGED as error:
        raise ReleaseError(f"{archive.filename} is damaged: {error}") from error
    source = {"filename": archive.filename, "sha256": archive.sha256, "kind": kind, "layout": LAYOUT}
    (site / SOURCE).write_text(json.dumps(source, indent=1) + "\n", encoding="utf-8")


def _unpack_ranges(
    index: Index, archive: Archive, size: int, engine: str, version: Version, site: Path, progress: bool
) -> None:
    for left in reversed(range(index.settings.retries + 1)):
        try:
            with index.open_remote(archive, size) as remote, zipfile.ZipFile(remote) as wheel:
                remote.set_position_to_size(unpack.ranges(wheel, engine))
                wanted = sum(info.compress_size for info in unpack.wheel_members(wheel, engine)[0])
                with _bar(f"{engine} {version}", wanted, progress) as advance:
                    unpack.unpack_wheel(wheel, engine, str(version), site, advance)
            return
        except Interrupted:
            if not left:
                raise


def _choose(index: Index, archives: list[Archive]) -> tuple[Archive, str, int]:
    """The archive to use, how ("wheel", "sdist" or "ranges"), and its size in bytes."""
    # The wheels of a release differ in compiled parts alone; which of them is taken must not depend on this machine.
    wheels = sorted(
        (archive for archive in archives if archive.kind == "wheel"),
        key=lambda wheel: ("-none-any." not in wheel.filename, "x86_64" not in wheel.filename, wheel.filename),
    )
    sdists = [archive for archive in archives if archive.kind == "sdist" and ".tar" in archive.filename]
    sizes: dict[Archive, int | None] = {}
    for archive in (*wheels, *sdists):
        size = sizes[archive] = index.size(archive)
        if size is not None and size < SMALL:
            return archive, archive.kind, size
    for wheel in wheels:
        if (size := sizes[wheel]) is not None:
            return wheel, "ranges", size
    raise ReleaseError(f"{archives[0].filename} is too large, or of unknown size, and there is no wheel beside it.")


# What is published


def _archives(engine: str, version: Version) -> list[Archive]:
    """The files of one release, from the first place that has it."""
    places, failures = _places(engine)
    for place in places:
        if files := [archive for archive in place if archive.version == version]:
            return files
    if failures:  # the place that did not answer may be the one that has it
        raise failures[0]
    releases = _stable(places)
    if not releases:
        raise ReleaseError(f"The package index has no project {engine}.")
    near = [
        *[release for release in releases if release < version][-1:],
        *[release for release in releases if release > version][:1],
    ]
    nearest = " and ".join(map(str, near))
    raise ReleaseError(
        f"{engine} {version} is not published: nearest {'is' if len(near) == 1 else 'are'} {nearest}, newest is {releases[-1]}."
    )


def _stable(places: list[list[Archive]]) -> list[Version]:
    versions = {archive.version for place in places for archive in place}
    return sorted(version for version in versions if not version.is_prerelease)


_asked: dict[str, list[list[Archive]]] = {}


def _places(engine: str) -> tuple[list[list[Archive]], list[ReleaseError]]:
    if engine in _asked:
        return _asked[engine], []
    places, failures = _index().archives(engine)
    if not failures:  # a place that did not answer is asked again
        _asked[engine] = places
    return places, failures


def _index() -> Index:
    try:
        from .index import Index
    except ImportError as error:
        raise MissingExtra(error.name) from error
    return Index(pip_config.read())


def _known(engine: str) -> None:
    if engine not in ENGINES:
        raise ReleaseError(f"Unknown engine {engine!r}: attnfix knows {' and '.join(ENGINES)}.")


def _version(engine: str, release: str) -> Version:
    _known(engine)
    try:
        return Version(release)
    except InvalidVersion:
        raise ReleaseError(f"{release!r} is not a release number such as 0.5.10.post1.") from None


# The cache


def _cache_folder() -> Path:
    if folder := os.environ.get("ATTNFIX_CACHE_DIR"):
        return Path(folder).expanduser().absolute() / "releases"
    try:
        from platformdirs import user_cache_dir
    except ImportError as error:
        raise MissingExtra(error.name) from error
    return Path(user_cache_dir("attnfix")) / "releases"


#: Folders that this process has fetched or looked through
_whole: set[Path] = set()


def _in_cache(folder: Path) -> bool:
    """Whether the release is there as it was fetched. Raises ReleaseError where others may write to the cache."""
    with _disk(folder.parent), suppress(FileNotFoundError):
        check_cache(folder.parent)
    if not os.path.lexists(folder):
        return False
    try:
        check(folder)
    except Spoilt as error:
        log.warning("%s is fetched anew: %s", untrusted.line(str(folder)), untrusted.line(str(error)))
        return False
    _whole.add(folder)
    return True


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, on the same file system, gone afterwards."""
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    check_cache(folder.parent)
    for left in folder.parent.glob(".fetching-*"):
        with suppress(OSError):  # another process is throwing it away too
            if time.time() - left.stat().st_mtime > STALE:
                shutil.rmtree(left)
    work = Path(tempfile.mkdtemp(prefix=".fetching-", dir=folder.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _settle(site: Path, folder: Path) -> None:
    """Moves the finished `site` to `folder` in one step, whoever else does the same at the same time."""
    for number in range(100):
        try:
            os.replace(site, folder)
            return
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
                raise
        with suppress(Spoilt):
            check(folder)
            return  # another process was faster, with the same files
        with suppress(FileNotFoundError):  # spoilt, or of another layout: out of the way
            os.replace(folder, site.parent / f"old-{number}")
    raise ReleaseError(f"Cannot write {folder}: something else keeps changing it.")


@contextmanager
def _disk(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise ReleaseError(f"No space left in {cache}: make room, or set ATTNFIX_CACHE_DIR.") from error
        raise ReleaseError(f"Cannot write to the cache {cache}: {error.strerror or error}") from error


@contextmanager
def _bar(title: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar of `total` bytes on stderr; yields how to advance it."""
    if not show:
        yield lambda count: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    except ImportError as error:
        raise MissingExtra(error.name) from error
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
