"""Codes that attnfix knows: those it patches, of affected releases and of edited sources that structural predicates recognise,
and those of healthy releases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from attnfix.compat.fix import Fix
from attnfix.compat.gate import ledger, source_files
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import FIXES
from attnfix.prove import runner


@dataclass(frozen=True)
class Code:
    """`release` has it, or has it after `edit`, one of the proof's edits."""

    fix: Fix
    release: str
    edit: str | None = None

    def __str__(self) -> str:
        return f"{self.fix.id} on {self.release}{f' ({self.edit})' if self.edit else ''}"

    def files(self) -> dict[str, bytes]:
        """The modules that the edit changes, changed."""
        if self.edit is None:
            return {}
        read = source_files.Sources(fetch.fetch(self.fix.engine, self.release, progress=False) / self.fix.engine)
        edited = runner.proof_of(self.fix).edits[self.edit](lambda module: (read(module) or b"").decode())
        return {module: source.encode() for module, source in edited.items()}


def published(fix: Fix, draw: random.Random, *, affected: bool) -> Iterator[Code]:
    """Each code of the ledger, in one of the releases that have it."""
    for code in ledger.load(fix).code:
        if code.releases and (code.verdict == ledger.AFFECTED) is affected:
            yield Code(fix, draw.choice(list(code.releases)))


def edited(fix: Fix) -> Iterator[Code]:
    """Code of the ledger that no release has: a release's with the fault put back."""
    yield from (
        Code(fix, *code.edited.split(": ", 1))
        for code in ledger.load(fix).code
        if code.edited and " beside " not in code.edited
    )


def every(draw: random.Random) -> list[Code]:
    """What is patched."""
    return [code for fix in FIXES for code in (*published(fix, draw, affected=True), *edited(fix))]


def healthy(draw: random.Random) -> list[Code]:
    return [code for fix in FIXES for code in published(fix, draw, affected=False)]
