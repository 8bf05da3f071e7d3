"""Wrong patching: code that nobody has judged is left alone, and code that is only written otherwise is recognised."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from attnfix.compat.gate import ledger

from . import Row, draw_seed, faulty, proofs, recognised, unwitnessed_calls, witness_coverage
from .gate_verdicts import sources
from .mutations import Mutations

#: Mutants per digest: of code that is patched, and of code that is left alone anyway
MUTANTS, OF_HEALTHY = 50, 10


@dataclass
class Outcome:
    """`proven`: mutants that are patched, and on which the proof was run: they have become the code of another release.
    `broken`: of those, the ones that the engine cannot be imported with, whatever attnfix does, such as a function that its
    module lost and others import. `elsewhere`: mutants that have become the code of a healthy release."""

    tried: int = 0
    proven: int = 0
    broken: int = 0
    elsewhere: int = 0
    wrong: list[str] = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)

    def __iadd__(self, other: Outcome) -> Outcome:
        self.tried += other.tried
        self.proven += other.proven
        self.broken += other.broken
        self.elsewhere += other.elsewhere
        self.wrong += other.wrong
        self.kinds += other.kinds
        return self


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    seed = draw_seed()
    say(f"mutants: seed {seed}")
    with ProcessPoolExecutor(2) as pool:
        rows = [witnesses(quick, seed, pool, say)]
    return rows + [part.run(quick, seed, say) for part in (recognised, witness_coverage, unwitnessed_calls)]


# Mutants of witnesses


def witnesses(quick: bool, seed: int, pool: ProcessPoolExecutor, say: Callable[[str], None]) -> Row:
    """Of every code that is patched, and of the codes of healthy releases; of one of each a fix where it is quick."""
    draw = random.Random(seed)
    patched, healthy = faulty.every(draw), faulty.healthy(draw)
    if quick:
        patched, healthy = [
            list({code.fix: code for code in draw.sample(codes, len(codes))}.values()) for codes in (patched, healthy)
        ]
    wanted = [(code, 6 if quick else MUTANTS) for code in patched] + [(code, 1 if quick else OF_HEALTHY) for code in healthy]
    total = Outcome()
    for done, outcome in enumerate(pool.map(of_witnesses, *zip(*((code, count, seed) for code, count in wanted))), 1):
        total += outcome
        for sentence in outcome.wrong:
            say(sentence)
        if done % 100 == 0 or done == len(wanted):
            say(f"witnesses of {done} of {len(wanted)} codes: {total.tried:,} mutants, {len(total.wrong)} wrong")
    figures = {"codes that are patched": str(len(patched)), "codes of healthy releases": str(len(healthy))}
    figures["patched, and proven"] = str(total.proven)
    figures["of these, engines that cannot be imported"] = str(total.broken)
    figures["code of another healthy release"] = str(total.elsewhere)
    figures |= {kind: f"{count:,}" for kind, count in total.kinds.most_common()}
    return Row("mutants of witnesses: unknown source", total.tried, total.wrong, figures)


def of_witnesses(code: faulty.Code, wanted: int, seed: int) -> Outcome:
    """Mutants of each witness of one code in turn. Wrong: any that is patched and on which the proof does not hold, and any
    that the gate takes for code of a healthy release which it is not."""
    outcome, draw = Outcome(), random.Random(f"{seed} {code}")
    with sources(code.fix, code.release, code.files()) as here:
        drawn = [(place, Mutations(here.source(place.module), place.qualname).drawn(draw)) for place in here.present()]
        draw.shuffle(drawn)
        while outcome.tried < wanted and drawn:
            place, mutants = drawn.pop(0)
            if (mutant := next(mutants, None)) is None:
                continue
            drawn.append((place, mutants))
            found = here.judge(place.module, mutant.source.encode())
            if found.reason.startswith("a witness cannot be read"):
                continue  # no Python: nothing is shown by that
            outcome.tried += 1
            outcome.kinds[mutant.kind] += 1
            if found.kind == ledger.UNKNOWN:
                continue
            complaint = f"{found.kind}, {found.reason}"
            if found.affected:
                outcome.proven += 1
                answers = proofs.on(code, {place.module: mutant.source.encode()}, seed)
                outcome.broken += not answers.came_up
                complaint = answers.complaint if answers.came_up else None
            elif here.same_as(found.reason.removeprefix("code of "), place.module, mutant.source):
                outcome.elsewhere += 1
                complaint = None
            if complaint:
                outcome.wrong.append(f"{code}, {place}, {mutant.what}: {complaint} (seed {seed})")
    return outcome
