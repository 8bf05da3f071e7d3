"""Wrong patching: code that nobody has judged is left alone, and code that is only written otherwise is recognised."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from attnfix.compat import ledger
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import BY_ID, FIXES

from . import Row
from .judged import sources
from .mutations import Mutations

#: Mutants per digest: of code that is patched, and of code that is left alone anyway
MUTANTS, OF_HEALTHY = 50, 10


@dataclass
class Outcome:
    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)

    def __iadd__(self, other: Outcome) -> Outcome:
        self.tried += other.tried
        self.wrong += other.wrong
        self.kinds += other.kinds
        return self


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    seed = secrets.randbelow(2**31)
    say(f"mutants: seed {seed}")
    with ProcessPoolExecutor(2) as pool:
        return [witnesses(quick, seed, pool, say)]


# Mutants of witnesses


def witnesses(quick: bool, seed: int, pool: ProcessPoolExecutor, say: Callable[[str], None]) -> Row:
    """Every code of every ledger; one of each verdict of a fix where it is quick."""
    jobs = [(fix.id, code.verdict, draw_release(code, seed), seed) for fix in FIXES for code in codes(fix, quick)]
    total, judged = Outcome(), Counter()
    for (name, verdict, *_), outcome in zip(jobs, pool.map(of_witnesses, *zip(*((*job, 8 if quick else 0) for job in jobs)))):
        total += outcome
        judged[verdict] += 1
        if outcome.wrong:
            say(f"{name}: {len(outcome.wrong)} wrong")
    figures = {f"codes that are {verdict}": str(count) for verdict, count in judged.items()}
    figures |= {kind: f"{count:,}" for kind, count in total.kinds.most_common()}
    return Row("mutants of witnesses: unknown source", total.tried, total.wrong, figures)


def codes(fix: Fix, quick: bool) -> Iterable[ledger.Code]:
    code = ledger.load(fix).code
    return {each.verdict: each for each in code}.values() if quick else code


def draw_release(code: ledger.Code, seed: int) -> str:
    return random.Random(f"{seed} {code.digests}").choice(list(code.releases))


def of_witnesses(name: str, verdict: str, release: str, seed: int, at_most: int) -> Outcome:
    """Mutants of each witness of one code in turn. Wrong: any that the gate takes for code it knows."""
    fix, outcome = BY_ID[name], Outcome()
    wanted = at_most or (MUTANTS if verdict == ledger.AFFECTED else OF_HEALTHY)
    draw = random.Random(f"{seed} {name} {release}")
    with sources(fix, release) as here:
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
            if found.kind != ledger.UNKNOWN:
                outcome.wrong.append(f"{name} on {release}, {place}, {mutant.what}: {found.kind}, {found.reason} (seed {seed})")
    return outcome
