"""The proof of a fix on sources that nobody has judged: real engine code in fresh processes, stock and with the fix."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge
from attnfix.compat.releases import fetch
from attnfix.prove import edited_release, runner
from attnfix.prove.verdict import PROVEN, judge_proof

from .faulty import Code

_PATH = str(Path(__file__).with_name("watched_child.py"))
_CHILD = ("-c", f"import runpy; runpy.run_path({_PATH!r}, run_name='__main__')")


@dataclass(frozen=True)
class Answers:
    """What the gate said and what both sides answered. `came_up`: whether the stock engine could be imported, and
    ran where the bug is not; a mutant may break it for good. Where attnfix alone breaks it, it came up, and that is wrong."""

    judged: judge.Verdict
    stock: dict[str, Any]
    fixed: dict[str, Any]

    @property
    def came_up(self) -> bool:
        stock, fixed = (side.get("control", {}).get("raised") for side in (self.stock, self.fixed))
        return "error" not in self.stock and (stock is None or stock != fixed)

    @property
    def complaint(self) -> str | None:
        """What the proof has against it; None where it holds."""
        verdict, reason = judge_proof(self.judged, self.stock, self.fixed)
        return None if verdict == PROVEN else reason


def on(code: Code, sources: Mapping[str, bytes], seed: int) -> Answers:
    """The proof on `code` where the modules in `sources` are others."""
    with _changed(code, sources) as site, ThreadPoolExecutor(2) as both:
        stock, fixed = both.map(lambda off: side(code, seed, site, stock=off), (True, False))
        return Answers(judge.judge(code.fix, site / code.fix.engine), stock, fixed)


@contextmanager
def _changed(code: Code, sources: Mapping[str, bytes]) -> Iterator[Path]:
    root = fetch.fetch(code.fix.engine, code.release, progress=False) / code.fix.engine
    changed = {module: text.decode() for module, text in {**code.files(), **sources}.items()}
    with tempfile.TemporaryDirectory(prefix="attnfix-proof-") as folder:
        yield edited_release.site(Path(folder), code.fix.engine, root, lambda read: changed)


def traced(code: Code, seed: int) -> dict[str, Any]:
    """The answer of the stock side on `code` itself, with what it ran."""
    with _changed(code, {}) as site:
        answers = traced_on([code.fix], site, seed)
        return answers.get(code.fix.id, answers)


def traced_on(fixes: Sequence[Fix], site: Path, seed: int) -> dict[str, Any]:
    """{fix id: answer} of the stock side of several fixes of one engine on a release, with what each ran."""
    child = [*_CHILD, "trace"]
    return runner.run_sides(fixes, fixes[0].engine, seed, stock=True, site=site, run=True, child=child)


def side(code: Code, seed: int, site: Path, *, stock: bool) -> dict[str, Any]:
    answers = runner.run_sides([code.fix], code.fix.engine, seed, stock=stock, site=site, run=True, child=_CHILD)
    return answers.get(code.fix.id, answers)
