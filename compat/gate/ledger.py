"""The ledger of a fix: which code of its witnesses was judged, with what verdict, and the releases that have it.

It is what the engine's `index` knows of this fix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..fix import Attribute, CodePath, Fix, Judgeable
from . import index
from .index import CUT as CUT
from .index import Entry, Index
from .index import LedgerError as LedgerError

AFFECTED, FIXED, NOT_AFFECTED, UNKNOWN = "affected", "fixed upstream", "not affected", "unknown"
#: What code of a ledger can be
VERDICTS = frozenset({AFFECTED, FIXED, NOT_AFFECTED})


class Code(NamedTuple):
    """One state of the witnesses' code. name: `judge.name_of` its digests. releases: that have it, in order; bits: the same in
    the index.

    edited: "release: name of the edit" of code that was made by an edit and that no release has; `digests` has its digests.
    """

    name: str
    verdict: str
    releases: tuple[str, ...]
    bits: int = 0
    edited: str | None = None
    digests: tuple[str | None, ...] = ()

    @property
    def first_release(self) -> str:
        """The first that has it; of edited code, what it was made of, as in `edited`."""
        return next(iter(self.releases), self.edited or "")


class Ledger(NamedTuple):
    """All code of one fix that was ever judged, in release order; `witnesses` in the order of its code paths."""

    fix: str
    witnesses: tuple[CodePath, ...]
    code: tuple[Code, ...]
    known: Index

    def by_files(self, hashes: Sequence[str | None]) -> Code | None:
        """The code whose files have these sha256, one for each module of the witnesses, None where there is no such file."""
        modules = dict.fromkeys(place.module for place in self.witnesses)
        return self._had_by("file", list(modules), hashes)

    def by_digests(self, digests: Sequence[str | None]) -> Code | None:
        """The code whose witnesses have these digests, None where there is no such definition."""
        cut = tuple(digest and digest[:CUT] for digest in digests)
        return self._had_by("code", self.witnesses, digests) or next((code for code in self.code if code.digests == cut), None)

    def _had_by(self, kind: str, names: Sequence[object], digests: Sequence[str | None]) -> Code | None:
        """The code of the releases that have all of these."""
        bits = -1
        for name, digest in zip(names, digests):
            bits &= self.known.having(kind, str(name), digest)
            if not bits:
                return None
        return next((code for code in self.code if code.bits & bits), None)

    def digests(self, code: Code) -> tuple[str | None, ...]:
        """Of one of its codes, cut as in the index."""
        return code.digests or tuple(self.known.digest_in("code", str(place), code.bits) for place in self.witnesses)

    def nearest(self, digests: Sequence[str | None]) -> Code | None:
        """The code that shares most digests with these: what an unknown source is compared with in a message."""
        published = [code for code in self.code if code.releases]
        return min(published, key=lambda code: len(self.unlike(code, digests)), default=None)

    def unlike(self, code: Code, digests: Sequence[str | None]) -> list[CodePath]:
        """The witnesses of which `code` has another digest."""
        pairs = zip(self.witnesses, self.digests(code), digests)
        return [place for place, known, here in pairs if known != (here and here[:CUT])]

    def releases(self) -> Iterator[tuple[str, str]]:
        """(release, verdict) of every release seen, in release order. Raises LedgerError for one that is no version."""
        from packaging.version import InvalidVersion, Version

        pairs = [(release, code.verdict) for code in self.code for release in code.releases]
        try:
            yield from sorted(pairs, key=lambda pair: Version(pair[0]))
        except InvalidVersion as error:
            raise LedgerError(f"the ledger of {self.fix} is damaged: {error}") from error

    def verdict(self, release: str) -> str:
        """Verdict of a published release, `unknown` if it was never judged. A local label (`+cu128`) is left out."""
        from packaging.version import Version

        def public(release: str) -> Version:
            return Version(Version(release).public)

        return {public(seen): verdict for seen, verdict in self.releases()}.get(public(release), UNKNOWN)

    def may_be_affected(self, release: str) -> bool:
        """Whether a release that was never judged lies from the first affected one up to the fix, or cannot be read."""
        from packaging.version import InvalidVersion, Version

        first = next((seen for seen, verdict in self.releases() if verdict == AFFECTED), None)
        try:
            here, fixed = Version(release), self.fixed_in()
            return first is not None and Version(first) <= here and (fixed is None or here < Version(fixed))
        except InvalidVersion:
            return True

    def fixed_in(self) -> str | None:
        """First release after the last affected one that was judged fixed."""
        found = None
        for release, verdict in self.releases():
            found = (found or release) if verdict == FIXED else None
        return found


def path_of(fix: Fix) -> Path:
    """The index in which a fix stands: beside the folder of the module that declares its corrections."""
    import sys

    correct = next(target.correct for target in fix.targets if not isinstance(target, Attribute))
    module = sys.modules[correct.__module__]
    return Path(str(module.__file__)).parents[1] / "index.json"


@cache
def load(fix: Judgeable) -> Ledger:
    """The ledger of `fix`. Raises LedgerError if it cannot be used."""
    try:
        return of(fix, fix.index if isinstance(fix, Entry) else index.read(path_of(fix.whole())))
    except LedgerError as error:
        raise error if fix.id in str(error) else LedgerError(f"the ledger of {fix.id}: {error}") from error


def of(fix: Judgeable, known: Index) -> Ledger:
    """What an index has of `fix`. Raises LedgerError if it cannot be used."""
    found = known.line(f"fix {fix.id}")
    if found is None:
        raise LedgerError(f"the index has no line for {fix.id}; a new fix gets one from scripts/ledger/ledgers.py")
    with index.damage(f"the ledger of {fix.id}"):
        if found["code_paths"] != [str(place) for place in fix.code_paths]:
            raise LedgerError(f"the ledger of {fix.id} was made for other witnesses; run scripts/ledger/ledgers.py")
        codes = [_code(known, *row) for row in found["codes"]]
        edits = [_edited(fix, *row) for row in found["edited"]]
    return Ledger(fix.id, fix.code_paths, (*codes, *edits), known)


def _code(known: Index, name: str, verdict: str, span: str) -> Code:
    if verdict not in VERDICTS or not (bits := known.bits(span)):
        raise ValueError(f"{verdict!r} of {span!r} is no verdict of releases")
    return Code(_text(name), verdict, known.names(bits), bits)


def _edited(fix: Judgeable, name: str, label: str, digests: list[str | None]) -> Code:
    if len(digests) != len(fix.code_paths) or not {*map(type, digests)} <= {str, type(None)}:
        raise ValueError("not one digest for each witness")
    return Code(_text(name), AFFECTED, (), edited=_text(label), digests=tuple(digests))


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no text")
    return found
