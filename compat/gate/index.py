"""What is known of the code of one engine's releases. `scripts/ledger/ledgers.py` writes it, nobody edits it.

`patches/<engine>/index.json` is one JSON object with one key a line, so that a process parses only the lines that it needs:

    "index_format": 1, "digest_format": 1
    "releases": [release, …]                          in order
    "targets": {module: [fix, …]}                     in which modules a fix has a target
    "fix ID": {"default": …, "code_paths": [place, …], "codes": [[name, verdict, span], …],
               "edited": [[name, label, digests], …]}       (one line)
    "file MODULE": {sha256: span}
    "code PLACE": {digest: span}

A span such as "0-3,7" counts in `releases`. A hash or a digest is cut to 128 bits. Each code path and its module have a line;
a release that has no such file or no such definition is in none of its spans, and null stands for it in `digests`. A fix's
codes are the states of its witnesses' code, in order of release. Edited code is that of a release with the fault put back by
an edit of the fix's proof, and no release has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Any

from ..fix import CodePath, Fix, Judgeable
from .digest import DIGEST_FORMAT

INDEX_FORMAT = 1
#: Characters of a hash or a digest that the index keeps
CUT = 32


class LedgerError(Exception):
    """What is known of a fix cannot be used: missing, damaged, of another format, or made for other witnesses."""


class Index:
    """The lines of the file, each parsed when it is first asked for. Raises LedgerError where it cannot be used."""

    def __init__(self, text: bytes):
        lines = text.splitlines()
        if [*lines[:1], *lines[-1:]] != [b"{", b"}"]:
            raise LedgerError("the index is damaged: its first or last line is missing")
        parts = (line.partition(b'": ') for line in lines)
        self._lines = {name[1:]: value.rstrip(b",") for name, _, value in parts}
        self._parsed: dict[str, Any] = {}
        self._had: dict[tuple[str, str, str | None], int] = {}
        for name, known in ("index_format", INDEX_FORMAT), ("digest_format", DIGEST_FORMAT):
            if (found := self.line(name)) != known:
                raise LedgerError(f"the index has {name} {found}, not {known}")

    def line(self, name: str) -> Any:
        """The value under that name; None where there is none."""
        if name not in self._parsed:
            try:
                text = self._lines.get(name.encode())
                self._parsed[name] = None if text is None else json.loads(text)
            except (ValueError, RecursionError) as error:
                raise LedgerError(f"the index cannot be read at {name}: {error}") from error
        return self._parsed[name]

    @cached_property
    def releases(self) -> tuple[str, ...]:
        return tuple(self.line("releases"))

    @cached_property
    def fixes(self) -> dict[str, frozenset[str]]:
        """{id of a fix: modules in which it has a target}, in the order of the catalogue."""
        modules: dict[str, set[str]] = {name[4:].decode(): set() for name in self._lines if name.startswith(b"fix ")}
        with damage("its targets"):
            for module, fixes in self.line("targets").items():
                for name in fixes:
                    modules[name].add(module)
        return {name: frozenset(found) for name, found in modules.items()}

    def having(self, kind: str, name: str, digest: str | None) -> int:
        """The releases that have this file or this code there, or none; as bits, for each release one."""
        asked = kind, name, digest
        if asked not in self._had:
            with damage(f"{kind} {name}"):
                rows = self.line(f"{kind} {name}")
                if digest is not None:
                    self._had[asked] = self.bits(rows.get(digest[:CUT], ""))
                else:
                    self._had[asked] = ~reduce(or_, map(self.bits, rows.values()), 0)
        return self._had[asked]

    def digest_in(self, kind: str, name: str, bits: int) -> str | None:
        """Of this file or this code, in all of these releases; None where they lack it."""
        with damage(f"{kind} {name}"):
            rows = self.line(f"{kind} {name}")
            return next((digest for digest, span in rows.items() if not bits & ~self.bits(span)), None)

    def bits(self, span: str) -> int:
        """Raises ValueError where it is no span."""
        found = 0
        for part in () if span == "" else span.split(","):
            first, _, last = part.partition("-")
            start, stop = int(first), int(last or first) + 1
            if not 0 <= start < stop <= len(self.releases):
                raise ValueError(f"{span!r} is no span of releases")
            found |= (1 << stop) - (1 << start)
        return found

    def names(self, bits: int) -> tuple[str, ...]:
        found = []
        while bits:
            lowest = bits & -bits
            found.append(self.releases[lowest.bit_length() - 1])
            bits ^= lowest
        return tuple(found)


@contextmanager
def damage(where: str) -> Iterator[None]:
    """Around a look at what was read: raises LedgerError where it has not the form that it must have."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{where} is damaged: {type(error).__name__}: {error}") from error


class Entry(Judgeable):
    """A fix as the index knows it, without its folder: enough to judge the code that lies here."""

    def __init__(self, index: Index, id: str, declared: Callable[[str], Fix]):
        """declared: imports the folder of the fix, by its `package`."""
        self.index, self.id, self._declared = index, id, declared
        with damage(f"the ledger of {id}"):
            self.target_modules = index.fixes[id]

    @cached_property
    def _line(self) -> Any:
        return self.index.line(f"fix {self.id}")

    @cached_property
    def default(self) -> bool:  # type: ignore[override]
        with damage(f"the ledger of {self.id}"):
            return bool(self._line["default"])

    @cached_property
    def code_paths(self) -> tuple[CodePath, ...]:  # type: ignore[override]
        with damage(f"the ledger of {self.id}"):
            return tuple(map(CodePath.parse, self._line["code_paths"]))

    def whole(self) -> Fix:
        """Raises LedgerError where the folder declares another fix than the index was made for."""
        return self._whole

    @cached_property
    def _whole(self) -> Fix:
        fix = self._declared(self.package)
        if (fix.code_paths, fix.target_modules, fix.default) != (self.code_paths, self.target_modules, self.default):
            raise LedgerError(f"the ledger of {self.id} was made for another declaration; run scripts/ledger/ledgers.py")
        return fix


def entries(path: Path, declared: Callable[[str], Fix], every: Callable[[], Sequence[Judgeable]]) -> Sequence[Judgeable]:
    """The fixes of the index at `path`. Where it cannot be used, all as they are declared: each then says so as its state."""
    try:
        known = read(path)
        return [Entry(known, id, declared) for id in known.fixes]
    except LedgerError:
        return every()


@cache
def read(path: Path) -> Index:
    """Raises LedgerError if it cannot be used."""
    try:
        return Index(path.read_bytes())
    except OSError as error:
        raise LedgerError(f"the index cannot be read: {error}") from error
