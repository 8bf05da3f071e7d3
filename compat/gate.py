"""The gate: decides from the code that lies here, never from a version string, whether a fix applies."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

from . import ledger
from .digest import digest, find, in_context
from .engines import version_beside
from .fix import Fix, Place

#: In the order in which Python looks for them
_SUFFIXES = (*EXTENSION_SUFFIXES, ".py", ".pyc")

READ = Callable[[str], "bytes | None"]


class Verdict(NamedTuple):
    """`kind` is one of the ledger's verdicts; `release` the release whose code this is, where it is known;
    `present` the witnesses that this code has, `code` a short name of their digests: equal code, equal name."""

    kind: str
    reason: str
    release: str | None = None
    present: frozenset[Place] = frozenset()
    code: str | None = None

    @property
    def affected(self) -> bool:
        return self.kind == ledger.AFFECTED

    @property
    def modules(self) -> frozenset[str]:
        """Those of the witnesses that this code has."""
        return frozenset(place.module for place in self.present)


def path_of(root: Path, module: str) -> Path | None:
    """Source file of `module` under the package folder `root`, found by path alone: `find_spec` would import its parents.

    None where there is none, or where Python would import something else: a compiled module comes before a source of its name,
    and a package before a module.
    """
    stem = os.path.join(root, *module.split(".")[1:])
    # `Path` takes five times as long, in every process that serves
    for path in (prefix + suffix for prefix in (os.path.join(stem, "__init__"), stem) for suffix in _SUFFIXES):
        if os.path.isfile(path):
            return Path(path) if path.endswith(".py") else None
    return None


class Source:
    """One file. `stamp` changes when it is replaced; it is taken first, so that it never belongs to newer code than `data`."""

    def __init__(self, path: Path):
        self.path, found = path, os.stat(path)
        self.stamp = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    @cached_property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @cached_property
    def lines(self) -> list[bytes]:
        return self.data.splitlines()

    @cached_property
    def sha256(self) -> str:
        return _sha256(self.data)


class Sources:
    """The files of the package folder `root` by module: each is looked up, read and hashed once, for all fixes that are judged
    at a time. Called, it is the `READ` of what they hold. `version` is what the engine calls itself, where that is known."""

    def __init__(self, root: Path, version: str | None = None):
        self.root, self._version = root, version
        self._found: dict[str, Source | None] = {}

    def __getitem__(self, module: str) -> Source | None:
        if module not in self._found:
            path = path_of(self.root, module)
            self._found[module] = None if path is None else Source(path)
        return self._found[module]

    def __call__(self, module: str) -> bytes | None:
        return None if (source := self[module]) is None else source.data

    @cached_property
    def version(self) -> str | None:
        return self._version or version_beside(self.root)


def file_hashes(fix: Fix, sources: Sources) -> tuple[str | None, ...]:
    """sha256 of each file that holds a witness, in the ledger's order, None where the release has no such module."""
    return tuple(None if (source := sources[module]) is None else source.sha256 for module in fix.modules)


def digests(fix: Fix, read: READ) -> tuple[str | None, ...]:
    """Digest of each witness, None where the release has no such definition. Raises SyntaxError for a broken file."""
    return tuple(None if (data := read(place.module)) is None else _digest(data, place.qualname) for place in fix.places)


def locate(place: Place, read: READ) -> ast.AST | None:
    """The definition at `place`, or None."""
    data = read(place.module)
    return None if data is None else find(parsed(data), place.qualname)


def witness(place: Place, read: READ) -> ast.AST | None:
    """The definition at `place` inside the heads of its classes, whose code decides about it too: what is digested. Or None."""
    data = read(place.module)
    return None if data is None else in_context(parsed(data), place.qualname)


def judge(fix: Fix, engine: Path | Sources, *, use_file_hashes: bool = True) -> Verdict:
    """Verdict of `fix` for an engine: its package folder or, where several fixes are judged at a time, its sources.

    File hashes first: equal files hold equal code and no file need be parsed. Otherwise digest by digest, so that a fork or
    a nightly that did not touch the witnesses is still recognised, and a mismatch can be named. What no ledger knows may
    still be a fault that never got into a release: the fix's `structure` has the last word.
    """
    try:
        known = ledger.load(fix)
        sources = engine if isinstance(engine, Sources) else Sources(engine)
        if use_file_hashes and (code := known.by_files(file_hashes(fix, sources))):
            return _known(fix, code, "files", sources.version)
        here = digests(fix, sources)
        if code := known.by_digests(here):
            return _known(fix, code, "code", sources.version)
        if recognised := _recognised(fix, sources):
            return Verdict(ledger.AFFECTED, f"recognised: {recognised}", None, _present(fix, here), name_of(here))
        return Verdict(ledger.UNKNOWN, _difference(fix, here, known))
    except ledger.LedgerError as error:
        return Verdict(ledger.UNKNOWN, str(error))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Verdict(ledger.UNKNOWN, f"a witness cannot be read: {error}")


def _known(fix: Fix, code: ledger.Code, what: str, installed: str | None) -> Verdict:
    release = installed if installed in code.releases else code.first_release
    return Verdict(code.verdict, f"{what} of {release}", release, _present(fix, code.digests), name_of(code.digests))


def _present(fix: Fix, digests: Sequence[str | None]) -> frozenset[Place]:
    return frozenset(place for place, found in zip(fix.places, digests) if found)


def name_of(digests: Sequence[str | None]) -> str:
    """Short name of a code by the digests of its witnesses, as records and evidence have it."""
    return _sha256(" ".join(map(str, digests)).encode())[:12]


def _recognised(fix: Fix, read: READ) -> str | None:
    """The word of the fix's structural predicate. One that stumbles over code it was not made for recognises nothing."""
    try:
        return fix.structure(partial(_witness, fix, read)) if fix.structure else None
    except Exception:
        return None


def _witness(fix: Fix, read: READ, text: str) -> ast.AST | None:
    """What a structural predicate may look at: the fix's own witnesses, since it is asked about them alone."""
    place = Place.parse(text)
    if place not in fix.places:
        raise ValueError(f"{place} is no witness of {fix.id}")
    return witness(place, read)


def _difference(fix: Fix, here: tuple[str | None, ...], known: ledger.Ledger) -> str:
    nearest = known.nearest(here)
    if nearest is None:
        return "no code of this fix was ever judged"
    names = [place.qualname or place.module for place, a, b in zip(fix.places, here, nearest.digests) if a != b]
    return f"{', '.join(names)}: not the code of any known release (nearest: {nearest.first_release})"


@lru_cache(maxsize=2)  # a tree takes a hundred times the size of its file
def parsed(data: bytes) -> ast.Module:
    return ast.parse(data)


def _digest(data: bytes, qualname: str) -> str | None:
    node = in_context(parsed(data), qualname)
    return None if node is None else digest(node)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
