"""Codes that attnfix knows: those it patches, of affected releases and of edited sources that structural predicates recognise,
and those of healthy releases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from attnfix.compat import gate, ledger, releases
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import FIXES
from attnfix.prove import runner


@dataclass(frozen=True)
class Code:
    """`release` has it, or has it after `edit`, one of the proof's EDITS."""

    fix: Fix
    release: str
    edit: str | None = None

    def __str__(self) -> str:
        return f"{self.fix.id} on {self.release}{f' ({self.edit})' if self.edit else ''}"

    def files(self) -> dict[str, bytes]:
        """The modules that the edit changes, changed."""
        if self.edit is None:
            return {}
        read = gate.Sources(releases.fetch(self.fix.engine, self.release, progress=False) / self.fix.engine)
        edited = runner.proof_of(self.fix).EDITS[self.edit](lambda module: (read(module) or b"").decode())
        return {module: source.encode() for module, source in edited.items()}


def published(fix: Fix, draw: random.Random, *, affected: bool) -> Iterator[Code]:
    """Each code of the ledger, in one of the releases that have it."""
    for code in ledger.load(fix).code:
        if (code.verdict == ledger.AFFECTED) is affected:
            yield Code(fix, draw.choice(list(code.releases)))


def recognised(fix: Fix) -> Iterator[Code]:
    """What a structural predicate recognises."""
    proof = runner.proof_of(fix) if fix.structure else None
    for release in getattr(proof, "EDITED", ()):
        yield from (Code(fix, release, edit) for edit in proof.EDITS if edit not in proof.UNRECOGNISED)


def every(draw: random.Random) -> list[Code]:
    """What is patched."""
    return [code for fix in FIXES for code in (*published(fix, draw, affected=True), *recognised(fix))]


def healthy(draw: random.Random) -> list[Code]:
    return [code for fix in FIXES for code in published(fix, draw, affected=False)]
