"""How many mends of the catalogue's own bugs the radar lists, and at which rank: for whoever changes the funnel.

    python -m scripts.radar.recall [ENGINE…]

A fix counts where a release is affected and the next one is fixed upstream. Its witnesses that changed between the two
stand for the mend. Witnesses that no other fix has are no roots: the radar has to find the mend without the fix.

A known bug counts where a release has it mended; the places of its fault stand for the mend. Many of them were found by the
radar itself, most of the others were reported.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, pairwise

from attnfix.cli import releases
from attnfix.compat.engines import ENGINES
from attnfix.compat.gate import index, ledger
from attnfix.patches.catalogue import BY_ID, known_bugs
from scripts.radar import funnel, scope
from scripts.radar.pair import Pair

_LIMITS = (10, 20, 40, 80, 120, 160)
#: (module, qualified name) of each
Places = Collection[tuple[str, str]]


def mends(engine: str) -> Iterator[tuple[Pair, str, dict[str, Places]]]:
    """(last release with the bug and the next one, its id, kind of places: those that stand for the mend)."""
    for pair, fix in _corrected(engine):
        targets = {(path.module, path.qualname) for target in BY_ID[fix].targets for path in target.code_paths}
        yield pair, fix, {"witness": {at for at, of in scope.witnesses(engine).items() if fix in of}, "target": targets}
    for bug in known_bugs(engine):
        if bug.fixed_in:
            pair = Pair(engine, bug.affected(releases.of(engine))[-1], bug.fixed_in)
            yield pair, bug.id, {"fault": {(path.module, path.qualname) for path in bug.code_paths}}


def _corrected(engine: str) -> Iterator[tuple[Pair, str]]:
    known = index.read(scope.ROOT / "patches" / engine / "index.json")
    for fix in known.fixes:
        verdicts = {name: said for _, said, span in known.line(f"fix {fix}")["codes"] for name in known.names(known.bits(span))}
        for old, new in pairwise(release for release in known.releases if release in verdicts):
            if (verdicts[old], verdicts[new]) == (ledger.AFFECTED, ledger.FIXED):
                yield Pair(engine, old, new), fix


def rank(found: Sequence[funnel.Candidate], places: Places) -> int | None:
    """Of the first candidate that is one of the places."""
    for number, candidate in enumerate(found, 1):
        parts = (candidate.change.old, candidate.change.new, *candidate.alike)
        if any((part.module, part.name) in places for part in parts):
            return number
    return None


def main() -> int:
    ranks = defaultdict[str, list[int | None]](list)
    for engine in sys.argv[1:] or ENGINES:
        found = sorted(mends(engine), key=lambda item: item[0].name)
        for _, group in groupby(found, key=lambda item: item[0].name):
            mended = list(group)
            pair = mended[0][0]
            for _, bug, kinds in mended:
                roots = {place: fixes for place, fixes in scope.witnesses(engine).items() if fixes != {bug}}
                listed = funnel.candidates(pair.comparison, pair.new, roots)
                for kind, places in kinds.items():
                    ranks[kind].append(at := rank(listed, places))
                    print(f"{bug} {pair.name}: {kind} {at} of {len(listed)}", flush=True)
    for name, numbers in ranks.items():
        counts = ", ".join(f"{sum(n is not None and n <= limit for n in numbers)} in {limit}" for limit in _LIMITS)
        print(f"{name}: {len([n for n in numbers if n])} of {len(numbers)} listed; {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
