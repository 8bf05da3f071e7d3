"""The ledger of a fix: generated data that maps the digests of its witnesses to a verdict and the releases seen with them.

`scripts/ledger/ledgers.py` writes it, nobody edits it. One JSON file per fix, beside its code:

    {"digest_format": 1, "fix": id, "witnesses": [place, …],
     "code": [{"verdict": …, "digests": [digest or null, …], "releases": {release: [sha256 of each file or null, …]}}]}

Digests are in the order of the witnesses, files in the order in which these name their modules. Code that no release has, a
release's with the fault put back by an edit of the fix's proof, has `"edited": "release: name of the edit"` and no releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..fix import Attribute, Fix
from .digest import DIGEST_FORMAT

AFFECTED, FIXED, NOT_AFFECTED, UNKNOWN = "affected", "fixed upstream", "not affected", "unknown"
#: What code of a ledger can be
VERDICTS = frozenset({AFFECTED, FIXED, NOT_AFFECTED})


class LedgerError(Exception):
    """The ledger cannot be used: missing, damaged, of another digest format, or made for other witnesses."""


class Code(NamedTuple):
    """One state of the witnesses' code: its verdict, its digests, and per release the hashes of the files that hold them.

    edited: "release: name of the edit" of code that was made by an edit, and that no release has.
    """

    verdict: str
    digests: tuple[str | None, ...]
    releases: dict[str, tuple[str | None, ...]]
    edited: str | None = None

    @property
    def first_release(self) -> str:
        """The first that has it; of edited code, what it was made of, as in `edited`."""
        return next(iter(self.releases), self.edited or "")


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
        published = [code for code in self.code if code.releases]
        return max(published, key=lambda code: sum(map(_same, code.digests, digests)), default=None)

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


def _same(a: str | None, b: str | None) -> bool:
    return a == b


def path_of(fix: Fix) -> Path:
    """Ledger file of a fix: beside the module that declares it."""
    import sys

    correct = next(target.correct for target in fix.targets if not isinstance(target, Attribute))
    module = sys.modules[correct.__module__]
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
    if found.get("witnesses") != [str(code_path) for code_path in fix.code_paths]:
        raise LedgerError(f"the ledger of {fix.id} was made for other witnesses; run scripts/ledger/ledgers.py")
    try:
        return Ledger(found["fix"], tuple(found["witnesses"]), tuple(_code(entry, fix) for entry in found["code"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"the ledger of {fix.id} is damaged: {type(error).__name__}: {error}") from error


def _code(entry: dict[str, Any], fix: Fix) -> Code:
    """One code of a ledger. Raises AttributeError, KeyError, TypeError or ValueError where it has not that form."""
    if entry["verdict"] not in VERDICTS:
        raise ValueError(f"{entry['verdict']!r} is no verdict")
    releases = {release: _one_each(hashes, fix.modules) for release, hashes in entry["releases"].items()}
    edited = entry.get("edited")
    if bool(releases) == isinstance(edited, str):
        raise ValueError("a code that is neither a release's nor made by an edit")
    return Code(entry["verdict"], _one_each(entry["digests"], fix.code_paths), releases, edited)


_TEXT_OR_NONE = {str, type(None)}


def _one_each(found: list[str | None], of: Sequence[object]) -> tuple[str | None, ...]:
    if len(found) != len(of) or not {*map(type, found)} <= _TEXT_OR_NONE:
        raise ValueError("not one digest for each witness, and one hash for each file")
    return tuple(found)
