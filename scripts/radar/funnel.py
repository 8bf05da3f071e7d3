"""Which changes may have mended a bug, the likeliest first."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass

from scripts.radar import scope
from scripts.radar.compare import Change, Comparison, Run, Runs, tokens
from scripts.radar.parts import Part, Parts

#: {(module, name) of what decides attention: …}
Roots = Mapping[tuple[str, str], Collection[str]]
#: Tokens that a small change has at most
SMALL = 40
_REACH = 2  # calls between a part and what decides attention
_OWN = 6  # a name of more definitions than this leads nowhere
#: {reason: what a mend adds}; counted in the text of a part
_ADDED = {
    "condition": re.compile(r"\b(if|elif|and|or|not|while)\b"),
    "check": re.compile(r"\b(assert|raise)\b"),
    "wait": re.compile(
        r"\b(wait_event|wait_stream|wait|synchronize|record_stream|record_event|record|barrier|current_stream)\("
    ),
    "copy": re.compile(r"\b(clone|contiguous|copy_|copy|deepcopy)\("),
    "cast": re.compile(r"\.(to|float|int|long|bfloat16|type_as)\(|\bdtype=|\bint64\b|\bfloat32\b"),
    "bound": re.compile(r"\b(clamp\w*|min|max|minimum|maximum|cdiv|where)\("),
    "fill": re.compile(r"\b(zero_|fill_|masked_fill_?|zeros\w*|full)\("),
}
_EXPLAINS = re.compile(
    r"\b(nan|inf|garbage|wrong|incorrect\w*|stale|race\w*|corrupt\w*|overflow\w*|out.of.bounds|oob|illegal|crash\w*|hang\w*|"
    r"deadlock\w*|avoid\w*|must|never|ensure\w*|prevent\w*|workaround|bug|mismatch\w*|undefined|uninitiali[sz]ed|dummy|padded|"
    r"padding|guard\w*|silently|unsafe|cannot|can't|otherwise)\b",
    re.IGNORECASE,
)
_TYPICAL = 20  # tokens of a mend; `python -m scripts.radar.recall` says how well this and the weights below do


@dataclass(frozen=True)
class Candidate:
    """change: the first of those that are alike; reasons: one or two words each; alike: other parts with the same change."""

    change: Change
    score: float
    reasons: tuple[str, ...]
    alike: tuple[Part, ...] = ()


def candidates(comparison: Comparison, new: Parts, roots: Roots) -> list[Candidate]:
    """The changes that are left, the likeliest mend first."""
    distance = reached(new, roots)
    groups: dict[Runs, list[Change]] = defaultdict(list)
    for change in comparison.changes:
        groups[change.runs].append(change)
    spread = Counter(run for runs in groups for run in {*runs})
    made = {part.leaf for part in comparison.called}
    found = [_judged(changes, roots, distance, spread, made) for changes in groups.values()]
    return sorted(filter(None, found), key=lambda candidate: -candidate.score)


def reached(parts: Parts, roots: Roots) -> dict[tuple[str, str], int]:
    """{(path, name): calls between the part and what decides attention}, by names alone."""
    by_leaf: dict[str, list[Part]] = defaultdict(list)
    for part in parts.values():
        by_leaf[part.leaf].append(part)
    found = {key: 0 for key, part in parts.items() if (part.module, part.name) in roots or scope.MAKERS.search(part.name)}
    edge = list(found)
    for step in range(1, _REACH + 1):
        names = {name for key in edge for name in tokens(parts[key].text)}
        edge = [
            (part.path, part.name)
            for name in names
            if 0 < len(by_leaf.get(name, ())) <= _OWN
            for part in by_leaf[name]
            if (part.path, part.name) not in found
        ]
        found |= dict.fromkeys(edge, step)
    return found


def _judged(
    changes: list[Change], roots: Roots, distance: Mapping[tuple[str, str], int], spread: Counter[Run], made: Set[str]
) -> Candidate | None:
    """made: names of new functions."""
    first, *others = sorted(changes, key=lambda change: distance.get((change.new.path, change.new.name), _REACH + 1))
    size = first.size
    added = tuple(name for name, sign in _ADDED.items() if _count(sign, first.new) > _count(sign, first.old))
    told = [line for line in first.new.comments if line not in first.old.comments]
    explained = any(_EXPLAINS.search(line) for line in told)
    about = scope.core(first.new.path) or any(map(scope.ABOUT.search, (first.new.name, *first.came)))
    reach = distance.get((first.new.path, first.new.name), _REACH if about else _REACH + 1)
    calls = sorted(name for name in made & first.came.keys() if f"{name}(" in first.new.text)
    if reach > _REACH or not (size <= SMALL or added or explained or calls):
        return None
    own = sum(spread[run] == 1 for run in first.runs) / max(len(first.runs), 1)  # a change that many parts have is no mend
    score = own - abs(math.log2((size + 1) / _TYPICAL)) / 2 - math.log2(len(changes)) / 2
    score += min(len(added), 3) / 2 + 1.5 * explained - reach / 2
    score += scope.nearness(first.new.path, first.new.name) + ((first.new.module, first.new.name) in roots) / 2
    reasons = (*added, *(["explained"] if explained else []), *([f"calls the new {', '.join(calls[:3])}"] if calls else []))
    return Candidate(first, score, reasons, tuple(change.new for change in others))


def _count(sign: re.Pattern[str], part: Part) -> int:
    return len(sign.findall(part.text))
