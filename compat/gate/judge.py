"""The gate: decides from the code that lies here, never from a version string, whether a fix applies."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..fix import CodePath, Judgeable
from . import ledger
from .digest import digest, find, in_context
from .source_files import READ, Sources


class Verdict(NamedTuple):
    """`kind` is one of the ledger's verdicts; `release` the release whose code this is, where it is known;
    `present` the witnesses that affected code has, `code` a short name of their digests: equal code, equal name."""

    kind: str
    reason: str
    release: str | None = None
    present: frozenset[CodePath] = frozenset()
    code: str | None = None

    @property
    def affected(self) -> bool:
        return self.kind == ledger.AFFECTED

    @property
    def modules(self) -> frozenset[str]:
        """Those of the witnesses that this code has."""
        return frozenset(code_path.module for code_path in self.present)


def file_hashes(fix: Judgeable, sources: Sources) -> tuple[str | None, ...]:
    """sha256 of each file that holds a witness, in the ledger's order, None where the release has no such module."""
    return tuple(None if (source := sources[module]) is None else source.sha256 for module in fix.modules)


def digests(fix: Judgeable, read: READ) -> tuple[str | None, ...]:
    """`digests_of` its witnesses."""
    return digests_of(fix.code_paths, read)


def digests_of(code_paths: Iterable[CodePath], read: READ) -> tuple[str | None, ...]:
    """Digest of each definition, None where the release has no such one. Raises SyntaxError for a broken file."""
    return tuple(
        None if (data := read(code_path.module)) is None else _digest(data, code_path.qualname) for code_path in code_paths
    )


def locate(code_path: CodePath, read: READ) -> ast.AST | None:
    """The definition at `code_path`, or None."""
    data = read(code_path.module)
    return None if data is None else find(parsed(data), code_path.qualname)


def witness(code_path: CodePath, read: READ) -> ast.AST | None:
    """The definition at `code_path` in the heads of its classes, whose code decides too: this is what is digested. Or None."""
    data = read(code_path.module)
    return None if data is None else in_context(parsed(data), code_path.qualname)


def judge(fix: Judgeable, engine: Path | Sources, *, use_file_hashes: bool = True) -> Verdict:
    """Verdict of `fix` for an engine: its package folder or, where several fixes are judged at a time, its sources.

    File hashes first: equal files hold equal code and no file need be parsed. Otherwise digest by digest, so that a fork or
    a nightly that did not touch the witnesses is still recognised, and a mismatch can be named.
    """
    try:
        known = ledger.load(fix)
        sources = engine if isinstance(engine, Sources) else Sources(engine)
        if use_file_hashes and (code := known.by_files(file_hashes(fix, sources))):
            return _known(known, code, "files", sources.version)
        here = digests(fix, sources)
        if code := known.by_digests(here):
            return _known(known, code, "code", sources.version)
        return Verdict(ledger.UNKNOWN, _difference(fix, here, known))
    except ledger.LedgerError as error:
        return Verdict(ledger.UNKNOWN, str(error))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Verdict(ledger.UNKNOWN, f"a witness cannot be read: {error}")


def _known(book: ledger.Ledger, code: ledger.Code, what: str, installed: str | None) -> Verdict:
    release = installed if installed in code.releases else next(iter(code.releases), None)
    reason = f"{what} of {release or code.edited}"
    return Verdict(code.verdict, reason, release, _present(book, code), code.name)


def _present(book: ledger.Ledger, code: ledger.Code) -> frozenset[CodePath]:
    """Nothing is done to code that is healthy, so nobody asks."""
    found = zip(book.witnesses, book.digests(code)) if code.verdict == ledger.AFFECTED else ()
    return frozenset(code_path for code_path, digest in found if digest)


def name_of(digests: Sequence[str | None]) -> str:
    """Short name of a code by the digests of its witnesses, as records and evidence have it."""
    return _sha256(" ".join(map(str, digests)).encode())[:12]


def _difference(fix: Judgeable, here: tuple[str | None, ...], known: ledger.Ledger) -> str:
    nearest = known.nearest(here)
    if nearest is None:
        return "no code of this fix was ever judged"
    names = [place.qualname or place.module for place in known.unlike(nearest, here)]
    return f"{', '.join(names)}: not the code of any known release (nearest: {nearest.first_release})"


@lru_cache(maxsize=2)  # a tree takes a hundred times the size of its file
def parsed(data: bytes) -> ast.Module:
    return ast.parse(data)


def _digest(data: bytes, qualname: str) -> str | None:
    return digest(parsed(data), qualname)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
