"""Mutants of functions that a target calls or whose result it reads, and that are no witnesses: the gate does not see them, so
the fix is installed on them. Whether it may be, its proof says, on real engine code in fresh processes.

A function that the scenario does not enter cannot change it. So each code's scenario is traced first; mutants of what it enters
are proven before others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from attnfix.compat.fix import CodePath
from attnfix.compat.gate import source_files
from attnfix.compat.releases import fetch

from . import Row, faulty, proofs
from .callees import callees
from .mutations import Mutant, Mutations

#: Proofs of a code: on mutants of each function that its scenario enters, and on one of another
OF_ENTERED, OF_OTHERS = 3, 1
SECONDS = 13 * 60


def run(quick: bool, seed: int, say: Callable[[str], None]) -> Row:
    """Codes in an order drawn by `seed`, every fix in turn, until SECONDS are over; one mutant where it is quick."""
    row = Row("mutants of functions that targets call: the proof holds where the fix is installed", 0)
    ended = time.monotonic() + SECONDS
    known = entered_ones = codes = broken = 0
    for code in _in_turn(faulty.every(random.Random(seed)), random.Random(seed)):
        if time.monotonic() > ended or (quick and row.tried):
            break
        read = source_files.Sources(fetch.fetch(code.fix.engine, code.release, progress=False) / code.fix.engine)
        found = callees(code.fix, read)
        entered = [] if quick else _entered(code, seed, found)
        codes, known, entered_ones = codes + 1, known + len(found), entered_ones + len(entered)
        say(f"{code}: {len(found)} functions called, no witnesses; entered: {', '.join(map(str, entered)) or 'none'}")
        for code_path, mutant in _mutants(found, entered, read, random.Random(f"{seed} {code}")):
            answers = proofs.on(code, {code_path.module: mutant.source.encode()}, seed)
            if answers.judged.reason.startswith("a witness cannot be read"):
                continue
            row.tried += 1
            broken += not answers.came_up
            if answers.came_up and answers.judged.affected and answers.complaint:
                row.wrong.append(f"{code}, {code_path}, {mutant.what}: {answers.complaint} (seed {seed})")
                say(row.wrong[-1])
            if quick:
                break
    row.figures = {
        "codes": str(codes), "functions called that are no witnesses": str(known),
        "of those entered by the scenario": "not looked at" if quick else str(entered_ones),
        "mutants that break the engine itself": str(broken),
    }  # fmt: skip
    return row


def _in_turn(codes: list[faulty.Code], draw: random.Random) -> Iterator[faulty.Code]:
    """Those of each fix in turn."""
    by_fix: dict[str, list[faulty.Code]] = {}
    for code in draw.sample(codes, len(codes)):
        by_fix.setdefault(code.fix.id, []).append(code)
    while by_fix:
        for name in list(by_fix):
            yield by_fix[name].pop()
            if not by_fix[name]:
                del by_fix[name]


def _entered(code: faulty.Code, seed: int, found: list[CodePath]) -> list[CodePath]:
    """Which of the functions `found` the stock scenario or control enters. Raises RuntimeError where it does not run."""
    answer = proofs.traced(code, seed)
    if "main" not in answer or "control" not in answer:
        raise RuntimeError(f"{code}: the stock scenario did not run: {answer.get('error', answer)} (seed {seed})")
    ran = {code_path for run in ("main", "control") for code_path in answer[run]["ran"]}
    return [code_path for code_path in found if str(code_path) in ran]


def _mutants(
    found: list[CodePath], entered: list[CodePath], read: source_files.READ, draw: random.Random
) -> Iterator[tuple[CodePath, Mutant]]:
    others = [code_path for code_path in found if code_path not in entered]
    chosen = [(code_path, OF_ENTERED) for code_path in entered] + [
        (code_path, OF_OTHERS) for code_path in draw.sample(others, min(1, len(others)))
    ]
    for code_path, count in chosen:
        drawn = Mutations((read(code_path.module) or b"").decode(), code_path.qualname).drawn(draw)
        yield from ((code_path, mutant) for mutant, _ in zip(drawn, range(count)))
