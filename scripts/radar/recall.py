"""How many mends of the catalogue's own bugs the radar lists, and at which rank: for whoever changes the funnel.

    python -m scripts.radar.recall [ENGINE…]

A fix counts where a release is affected and the next one is fixed upstream. Its witnesses that changed between the two
stand for the mend. Witnesses that no other fix has are no roots: the radar has to find the mend without the fix.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, pairwise

from attnfix.compat.engines import ENGINES
from attnfix.compat.gate import index, ledger
from attnfix.patches.catalogue import BY_ID
from scripts.radar import funnel, scope
from scripts.radar.pair import Pair

_LIMITS = (10, 20, 40, 80, 160)


def mends(engine: str) -> Iterator[tuple[Pair, str]]:
    """(last release with the bug and the next one, fix)."""
    known = index.read(scope.ROOT / "patches" / engine / "index.json")
    for fix in known.fixes:
        verdicts = {name: said for _, said, span in known.line(f"fix {fix}")["codes"] for name in known.names(known.bits(span))}
        for old, new in pairwise(release for release in known.releases if release in verdicts):
            if (verdicts[old], verdicts[new]) == (ledger.AFFECTED, ledger.FIXED):
                yield Pair(engine, old, new), fix


def rank(found: Sequence[funnel.Candidate], places: Collection[tuple[str, str]]) -> int | None:
    """Of the first candidate that is one of the places (module, name)."""
    for number, candidate in enumerate(found, 1):
        parts = (candidate.change.old, candidate.change.new, *candidate.alike)
        if any((part.module, part.name) in places for part in parts):
            return number
    return None


def main() -> int:
    ranks: dict[str, list[int | None]] = {"witness": [], "target": []}
    for engine in sys.argv[1:] or ENGINES:
        found = sorted(mends(engine), key=lambda item: item[0].name)
        for _, group in groupby(found, key=lambda item: item[0].name):
            mended = list(group)
            pair = mended[0][0]
            for _, fix in mended:
                witnesses = scope.witnesses(engine)
                roots = {place: fixes for place, fixes in witnesses.items() if fixes != {fix}}
                listed = funnel.candidates(pair.comparison, pair.new, roots)
                targets = {(path.module, path.qualname) for target in BY_ID[fix].targets for path in target.code_paths}
                at = rank(listed, {place for place, fixes in witnesses.items() if fix in fixes}), rank(listed, targets)
                ranks["witness"].append(at[0])
                ranks["target"].append(at[1])
                print(f"{fix} {pair.name}: witness {at[0]}, target {at[1]} of {len(listed)}", flush=True)
    for name, numbers in ranks.items():
        counts = ", ".join(f"{sum(n is not None and n <= limit for n in numbers)} in {limit}" for limit in _LIMITS)
        print(f"{name}: {len([n for n in numbers if n])} of {len(numbers)} listed; {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
