"""The text of an engine's index (`compat/gate/index.py`) from what was judged: the verdicts of releases, and their code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from packaging.version import Version

from attnfix.compat.fix import Judgeable
from attnfix.compat.gate import ledger
from attnfix.compat.gate.digest import DIGEST_FORMAT
from attnfix.compat.gate.index import CUT, INDEX_FORMAT

Digests = tuple[str | None, ...]


class Judged(NamedTuple):
    """A release: its verdict, the digests of the witnesses, and the sha256 of the files that hold them, None where there is
    none; and the name of its code."""

    release: str
    verdict: str
    digests: Digests
    hashes: Digests
    code: str


class Edited(NamedTuple):
    """Code that no release has; label: of `ledger.Code.edited`."""

    label: str
    digests: Digests
    code: str


Rows = tuple[Sequence[Judged], Sequence[Edited]]


def text(found: Mapping[Judgeable, Rows]) -> str:
    """found: of each fix of one engine, in the order of its catalogue. Raises ValueError where equal code has two verdicts."""
    releases = sorted({row.release for rows, _ in found.values() for row in rows}, key=Version)
    at = {release: number for number, release in enumerate(releases)}
    having: dict[str, dict[str, set[int]]] = {}

    def note(kind: str, names: Iterable[object], digests: Digests, release: str) -> None:
        for name, digest in zip(names, digests):
            if digest is not None:
                having.setdefault(f"{kind} {name}", {}).setdefault(digest[:CUT], set()).add(at[release])

    targets: dict[str, list[str]] = {}
    lines: dict[str, Any] = {}
    for fix, (rows, edits) in found.items():
        for name in (*(f"code {place}" for place in fix.code_paths), *(f"file {module}" for module in fix.modules)):
            having.setdefault(name, {})
        for module in sorted(fix.target_modules):
            targets.setdefault(module, []).append(fix.id)
        codes: dict[str, tuple[str, set[int]]] = {}
        for row in rows:
            verdict, numbers = codes.setdefault(row.code, (row.verdict, set()))
            if verdict != row.verdict:
                raise ValueError(f"{fix.id}: equal witnesses, unequal verdicts at {row.release}; a witness is missing")
            numbers.add(at[row.release])
            note("code", fix.code_paths, row.digests, row.release)
            note("file", fix.modules, row.hashes, row.release)
        lines[f"fix {fix.id}"] = {
            "default": fix.default,
            "code_paths": [str(place) for place in fix.code_paths],
            "codes": [[name, verdict, _span(numbers)] for name, (verdict, numbers) in codes.items()],
            "edited": [[edit.code, edit.label, [each and each[:CUT] for each in edit.digests]] for edit in edits],
        }
    spans = {name: {digest: _span(of) for digest, of in having[name].items()} for name in sorted(having)}
    head = {
        "index_format": INDEX_FORMAT,
        "digest_format": DIGEST_FORMAT,
        "releases": releases,
        "targets": dict(sorted(targets.items())),
    }
    return written({**head, **lines, **spans})


def written(index: Mapping[str, Any]) -> str:
    """One key a line."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in index.items())
    return f"{{\n{lines}\n}}\n"


def rows_of(fix: Judgeable) -> Rows:
    """What the index says of a fix, to be written again."""
    book = ledger.load(fix)
    rows = [
        Judged(release, code.verdict, book.digests(code), _hashes(book, fix, release), code.name)
        for code in book.code
        for release in code.releases
    ]
    edits = [Edited(code.edited, code.digests, code.name) for code in book.code if code.edited]
    return sorted(rows, key=lambda row: Version(row.release)), edits


def _hashes(book: ledger.Ledger, fix: Judgeable, release: str) -> Digests:
    bit = 1 << book.known.releases.index(release)
    return tuple(book.known.digest_in("file", module, bit) for module in fix.modules)


def _span(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
