"""What a target enters itself in its proof decides with it: each such function of the engine is to be a witness of its fix.

The stock scenario and control of every fix run traced, on releases that together have every code that is patched. A call
through a name that a module only passes on enters the definition, wherever it stands; a witness that is a line of import says
nothing of it. That is looked at in the sources of every code, too.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attnfix.compat.fix import CodePath, Fix
from attnfix.compat.gate import judge, ledger, source_files
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.prove import warm
from scripts.ledger.ledgers import covering
from tests.fixes.rows import RUN_AS_IT_IS

from . import Row, draw_seed, faulty, proofs
from .callees import Resolver, within

#: Modules whose functions decide no result: they say something
SAYING = frozenset({"vllm.logger"})
#: Releases, and edited codes, that are traced where it is quick
QUICK = 2

#: {(fix, what is no witness of it): where it was entered}
Missing = dict[tuple[Fix, CodePath], list[str]]


def run(quick: bool, seed: int, say: Callable[[str], None], fixes: Sequence[Fix] = FIXES) -> Row:
    """On every code that is patched, and in the sources of all; where it is quick, on a few drawn by `seed`."""
    row = Row("functions of the engine that targets enter in their proofs: witnesses", 0)
    draw, missing = random.Random(seed), Missing()
    codes = [(fix, code) for fix in fixes for code in ledger.load(fix).code if code.releases]
    for fix, code in _some(codes, quick, draw):
        read = sources(fix, code.first_release)
        for code_path in passed_on(fix, read):
            _note(row, missing, fix, code_path, read, f"passed on in {code.first_release}")
    patched = [(fix, code) for fix, code in codes if code.verdict == ledger.AFFECTED]
    edited = [code for fix in fixes for code in faulty.edited(fix)]
    with warm.proofs():
        for (engine, release), traced in _some(list(covering(patched).items()), quick, draw):
            answers = proofs.traced_on(traced, fetch.fetch(engine, release, progress=False), seed)
            for fix in traced:
                _note_all(row, missing, fix, answers.get(fix.id, answers), sources(fix, release), release)
            say(f"{engine} {release}: {len(traced)} fixes traced")
        for code in _some(edited, quick, draw):
            _note_all(row, missing, code.fix, proofs.traced(code, seed), sources(code.fix, code.release), str(code))
    row.wrong = [f"{fix.id}: {code_path} is no witness: {', '.join(where)}" for (fix, code_path), where in missing.items()]
    for sentence in row.wrong:
        say(sentence)
    row.figures = {
        "codes that are patched": str(len(patched) + len(edited)),
        "functions that are no witnesses": str(len(missing)),
    }
    return row


def sources(fix: Fix, release: str) -> source_files.Sources:
    return source_files.Sources(fetch.fetch(fix.engine, release, progress=False) / fix.engine)


def _some(of: list, quick: bool, draw: random.Random) -> list:
    return draw.sample(of, min(QUICK, len(of))) if quick else of


def _note_all(row: Row, missing: Missing, fix: Fix, answer: dict[str, Any], read: source_files.READ, where: str) -> None:
    """Raises RuntimeError where the scenario did not run."""
    if "main" not in answer or "control" not in answer:
        raise RuntimeError(f"{fix.id} on {where}: the stock scenario did not run: {answer.get('error', answer)}")
    for code_path in sorted({*answer["main"]["entered"], *answer["control"]["entered"]}):
        _note(row, missing, fix, CodePath.parse(code_path), read, where)


def _note(row: Row, missing: Missing, fix: Fix, code_path: CodePath, read: source_files.READ, where: str) -> None:
    """A witness counts where the gate finds it: one that it does not has no digest, and any change of it passes."""
    row.tried += 1
    if fix.id in RUN_AS_IT_IS:
        return
    around = (witness for witness in fix.code_paths if within(code_path, witness))
    if code_path.module not in SAYING and not any(judge.locate(witness, read) for witness in around):
        missing.setdefault((fix, code_path), []).append(where)


def passed_on(fix: Fix, read: source_files.READ) -> Iterator[CodePath]:
    """The engine's definitions that places of the fix only pass on: those that its module imports under that name."""
    resolver = Resolver(fix.engine, read)
    for code_path in fix.code_paths:
        head, _, rest = code_path.qualname.partition(".")
        if head and isinstance(judge.locate(CodePath(code_path.module, head), read), (ast.Import, ast.ImportFrom)):
            real = resolver.bound(code_path.module, head)
            if real and real.qualname:
                passed = CodePath(real.module, f"{real.qualname}.{rest}" if rest else real.qualname)
                if judge.locate(passed, read):  # a class that is there without this method passes none on
                    yield passed


if __name__ == "__main__":
    found = run(False, draw_seed(), print, [BY_ID[name] for name in sys.argv[1:]])
    print(f"{found.tried} functions entered, {len(found.wrong)} are no witnesses")
    sys.exit(1 if found.wrong else 0)
