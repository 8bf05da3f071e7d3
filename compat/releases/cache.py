"""Whether a release in the cache is what was fetched. It is imported: nobody else may have had a hand in it.

Every file that the RECORD of the fetch names is there, with the hash that stands in it, and nothing else but the bytecode that
Python compiled: of that only owner and mode can be checked. Who may write there:
docs/decisions/0025-proofs-run-published-releases.md.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import untrusted
from . import unpack
from .errors import ReleaseError

SOURCE = "SOURCE.json"
LAYOUT = 1  # of a cached folder; a folder of another layout is fetched anew
_LIMIT = unpack.MAX_RECORD
_BYTECODE = re.compile(r"(.*/)?__pycache__/[^/]+\.pyc(\.\d+)?")  # with a number while it is written


class Spoilt(Exception):
    """A cached folder is not what was fetched: one clause that says why."""


def check_cache(cache: Path) -> None:
    """Raises ReleaseError where somebody else may write to the folder of all releases, OSError where there is none."""
    found, own = cache.stat(), "set ATTNFIX_CACHE_DIR to a folder of your own."
    if found.st_uid not in untrusted.trusted():
        raise ReleaseError(f"The cache {cache} belongs to another user: {own}")
    if found.st_mode & 0o022:
        raise ReleaseError(f"The cache {cache} can be written by others: take that right away, or {own}")


def check(folder: Path) -> None:
    """Raises Spoilt where `folder`, a release in the cache, is not what was fetched."""
    try:
        source = untrusted.parsed(untrusted.read(folder / SOURCE, _LIMIT, owners=untrusted.trusted()))
        if not isinstance(source, dict) or source.get("layout") != LAYOUT:
            raise Spoilt("it has another layout")
        _check_files(folder, _recorded(folder))
    except (OSError, ValueError) as error:
        raise Spoilt(str(error)) from error


def _recorded(folder: Path) -> dict[str, str]:
    """{name: hash} of every file that was fetched; the hash of RECORD itself is empty."""
    text = untrusted.read(folder / f"{folder.name}.dist-info" / "RECORD", _LIMIT, owners=untrusted.trusted()).decode()
    return {row[0]: row[1] for row in csv.reader(text.splitlines()) if len(row) >= 2}


def _check_files(folder: Path, recorded: dict[str, str]) -> None:
    missing, owners = {*recorded}, untrusted.trusted()
    # Where nobody else can enter the cache, modes inside say nothing: they come of a umask
    forbidden = 0o022 if folder.parent.stat().st_mode & 0o077 else 0

    def look(name: str, found: os.stat_result) -> None:
        if found.st_uid not in owners:
            raise Spoilt(f"{name} belongs to another user")
        if found.st_mode & forbidden:
            raise Spoilt(f"{name} can be written by others")

    look(folder.name, os.lstat(folder))
    for name, entry in _below(str(folder)):
        if expected := recorded.get(name):
            try:
                with untrusted.opened(entry.path, unpack.MAX_FILE) as descriptor:
                    look(name, os.fstat(descriptor))
                    found = unpack.digest(untrusted.content(descriptor, unpack.MAX_FILE))
            except OSError as error:
                raise Spoilt(f"{name} cannot be read: {error}") from error
            if found != expected:
                raise Spoilt(f"{name} is not the file that was fetched")
        else:
            with _may_go(name):
                look(name, entry.stat(follow_symlinks=False))
            known = name in recorded or name == SOURCE or _BYTECODE.fullmatch(name)
            if not (entry.is_dir(follow_symlinks=False) or (known and entry.is_file(follow_symlinks=False))):
                raise Spoilt(f"{name} was not fetched")
        missing.discard(name)
    if missing:
        raise Spoilt(f"{min(missing)} is missing")


def _below(folder: str, above: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """(name, entry) of everything below a folder; no link is followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield above + entry.name, entry
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, f"{above}{entry.name}/")


@contextmanager
def _may_go(name: str) -> Iterator[None]:
    """Bytecode that is being written is renamed in the end."""
    try:
        yield
    except FileNotFoundError:
        if not _BYTECODE.fullmatch(name):
            raise
