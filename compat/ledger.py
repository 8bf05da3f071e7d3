"""The ledger of a fix: generated data that maps the digests of its witnesses to a verdict and the releases seen with them.

`scripts/ledger.py` writes it, nobody edits it. One JSON file per fix, beside its code:

    {"digest_format": 1, "fix": id, "witnesses": [place, …],
     "code": [{"verdict": …, "digests": [digest or null, …], "releases": {release: [sha256 of each file or null, …]}}]}

Digests are in the order of the witnesses, files in the order in which these name their modules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from . import own_imports
from .digest import DIGEST_FORMAT
from .fix import Attribute, Fix

AFFECTED, FIXED, NOT_AFFECTED, UNKNOWN = "affected", "fixed upstream", "not affected", "unknown"
#: What code of a ledger can be
VERDICTS = frozenset({AFFECTED, FIXED, NOT_AFFECTED})


class LedgerError(Exception):
    """The ledger cannot be used: missing, damaged, of another digest format, or made for other witnesses."""


class Code(NamedTuple):
    """One state of the witnesses' code: its verdict, its digests, and per release the hashes of the files that hold them."""

    verdict: str
    digests: tuple[str | None, ...]
    releases: dict[str, tuple[str | None, ...]]

    @property
    def first_release(self) -> str:
        return next(iter(self.releases))


class Ledger(NamedTuple):
    """All code of one fix that was ever judged, in release order."""

    fix: str
    witnesses: tuple[str, ...]
    code: tuple[Code, ...]

    def by_files(self, hashes: Sequence[str | None]) -> Code | None:
        """The code whose files have these sha256, in the ledger's order."""
        return next((code for code in self.code if tuple(hashes) in code.releases.values()), None)

    def by_digests(self, digests: Sequence[str | None]) -> Code | None:
        return next((code for code in self.code if code.digests == tuple(digests)), None)

    def nearest(self, digests: Sequence[str | None]) -> Code | None:
        """The code that shares most digests with these: what an unknown source is compared with in a message."""
        return max(self.code, key=lambda code: sum(map(_same, code.digests, digests)), default=None)

    def releases(self) -> Iterator[tuple[str, str]]:
        """(release, verdict) of every release seen, in release order. Raises LedgerError for one that is no version."""
        packaging = own_imports.packaging_version()
        pairs = [(release, code.verdict) for code in self.code for release in code.releases]
        try:
            yield from sorted(pairs, key=lambda pair: packaging.Version(pair[0]))
        except packaging.InvalidVersion as error:
            raise LedgerError(f"the ledger of {self.fix} is damaged: {error}") from error

    def verdict(self, release: str) -> str:
        """Verdict of a published release, `unknown` if it was never judged. A local label (`+cu128`) is left out."""
        version = own_imports.packaging_version().Version
        public = lambda release: version(version(release).public)  # noqa: E731
        return {public(seen): verdict for seen, verdict in self.releases()}.get(public(release), UNKNOWN)

    def may_be_affected(self, release: str) -> bool:
        """Whether a release that was never judged lies from the first affected one up to the fix, or cannot be read."""
        packaging = own_imports.packaging_version()
        first = next((seen for seen, verdict in self.releases() if verdict == AFFECTED), None)
        try:
            here, fixed = packaging.Version(release), self.fixed_in()
            return first is not None and packaging.Version(first) <= here and (fixed is None or here < packaging.Version(fixed))
        except packaging.InvalidVersion:
            return True

    def fixed_in(self) -> str | None:
        """First release after the last affected one that was judged fixed."""
        found = None
        for release, verdict in self.releases():
            found = (found or release) if verdict == FIXED else None
        return found


def _same(a: str | None, b: str | None) -> bool:
    return a == b


def path_of(fix: Fix) -> Path:
    """Ledger file of a fix: beside the module that declares it."""
    import sys

    correction = next(target.correction for target in fix.targets if not isinstance(target, Attribute))
    module = sys.modules[correction.__module__]
    return Path(str(module.__file__)).with_name("ledger.json")


@cache
def load(fix: Fix) -> Ledger:
    """The ledger of `fix`. Raises LedgerError if it cannot be used."""
    try:
        return parse(fix, path_of(fix).read_bytes())
    except OSError as error:
        raise LedgerError(f"the ledger of {fix.id} cannot be read: {error}") from error


def parse(fix: Fix, text: bytes) -> Ledger:
    """The ledger of `fix` from the text of its file. Raises LedgerError if it cannot be used."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"the ledger of {fix.id} cannot be read: {error}") from error
    found = data if isinstance(data, dict) else {}
    if found.get("digest_format") != DIGEST_FORMAT:
        raise LedgerError(f"the ledger of {fix.id} has digest format {found.get('digest_format')}, not {DIGEST_FORMAT}")
    if found.get("witnesses") != [str(place) for place in fix.places]:
        raise LedgerError(f"the ledger of {fix.id} was made for other witnesses; run scripts/ledger.py")
    try:
        return Ledger(found["fix"], tuple(found["witnesses"]), tuple(_code(entry, fix) for entry in found["code"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"the ledger of {fix.id} is damaged: {type(error).__name__}: {error}") from error


def _code(entry: dict[str, Any], fix: Fix) -> Code:
    """One code of a ledger. Raises AttributeError, KeyError, TypeError or ValueError where it has not that form."""
    if entry["verdict"] not in VERDICTS:
        raise ValueError(f"{entry['verdict']!r} is no verdict")
    releases = {release: _one_each(hashes, fix.modules) for release, hashes in entry["releases"].items()}
    if not releases:
        raise ValueError("a code that no release has")
    return Code(entry["verdict"], _one_each(entry["digests"], fix.places), releases)


_TEXT_OR_NONE = {str, type(None)}


def _one_each(found: list[str | None], of: Sequence[object]) -> tuple[str | None, ...]:
    if len(found) != len(of) or not {*map(type, found)} <= _TEXT_OR_NONE:
        raise ValueError("not one digest for each witness, and one hash for each file")
    return tuple(found)
