"""The differences between the parts of two releases. Moved and renamed parts are found again, and are no change."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property

from scripts.radar import scope
from scripts.radar.parts import Part, Parts

#: Share of tokens that two parts have in common if one became the other: of the same name, and of another
_ALIKE = {True: 0.5, False: 0.75}
_COMMON = 12  # a line of more parts than this names none of them
_LONG = 100_000  # tokens that went times tokens that came: such a place is one change
_TOKEN = re.compile(r"\w+|[^\w\s]")


#: (tokens that went, tokens that came) of a place that differs
Run = tuple[tuple[str, ...], tuple[str, ...]]
Runs = tuple[Run, ...]


def tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


@dataclass(frozen=True)
class Change:
    """A part that has another text in the new release."""

    old: Part
    new: Part

    @cached_property
    def runs(self) -> Runs:
        """Each place that differs."""
        found = []
        before, after = self.old.text.splitlines(), self.new.text.splitlines()
        for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if kind == "equal":
                continue
            gone, come = tokens("\n".join(before[a:b])), tokens("\n".join(after[c:d]))
            if len(gone) * len(come) > _LONG:
                found.append((tuple(gone), tuple(come)))
                continue
            for inner, e, f, g, h in SequenceMatcher(None, gone, come, autojunk=False).get_opcodes():
                if inner != "equal":
                    found.append((tuple(gone[e:f]), tuple(come[g:h])))
        return tuple(found)

    @cached_property
    def size(self) -> int:
        """Tokens changed: of each place the longer side."""
        return sum(max(len(gone), len(come)) for gone, come in self.runs)

    @cached_property
    def came(self) -> Counter[str]:
        """Tokens that the new text has more of."""
        return Counter(tokens(self.new.text)) - Counter(tokens(self.old.text))


@dataclass
class Comparison:
    """All that differs between two releases, in the code that decides attention."""

    changes: list[Change] = field(default_factory=list)
    added: list[Part] = field(default_factory=list)
    removed: list[Part] = field(default_factory=list)

    @cached_property
    def called(self) -> list[Part]:
        """New parts that changed ones name."""
        named = Counter[str]()
        for change in self.changes:
            named.update(change.came.keys())
        return [part for part in self.added if part.leaf in named]


def compare(old: Parts, new: Parts) -> Comparison:
    pairs = [(old[key], new[key]) for key in old.keys() & new.keys()]
    gone = [part for key, part in old.items() if key not in new]
    come = [part for key, part in new.items() if key not in old]
    moved = _moved(gone, come)
    left = {id(part) for pair in moved for part in pair}
    changes = [Change(*pair) for pair in (*pairs, *moved) if pair[0].text != pair[1].text and _decides(*pair)]
    return Comparison(
        sorted(changes, key=lambda change: (change.new.path, change.new.first)),
        *(sorted((part for part in side if id(part) not in left and _decides(part)), key=_farness) for side in (come, gone)),
    )


def _farness(part: Part) -> tuple[float, str, int]:
    return -scope.nearness(part.path, part.name), part.path, part.first


def _decides(*parts: Part) -> bool:
    return any(scope.decides(part.path, f"{part.name}\n{part.text}") for part in parts)


def _moved(gone: Iterable[Part], come: Iterable[Part]) -> list[tuple[Part, Part]]:
    """Each part that went, with the one that it became: the most alike first."""
    by_line: dict[str, list[Part]] = defaultdict(list)
    by_leaf: dict[str, list[Part]] = defaultdict(list)
    for part in come:
        by_leaf[part.leaf].append(part)
        for line in dict.fromkeys(part.text.splitlines()):
            by_line[line].append(part)
    found = []
    for part in gone:
        shared = Counter[int]()
        near = {id(other): other for other in by_leaf[part.leaf][:200]}
        for line in dict.fromkeys(part.text.splitlines()):
            if len(by_line[line]) <= _COMMON:
                for other in by_line[line]:
                    near[id(other)] = other
                    shared[id(other)] += 1
        best = sorted(near.values(), key=lambda other: (-shared[id(other)], other.leaf != part.leaf))[:8]
        for other in best:
            same = other.leaf == part.leaf
            if (share := _alike(part, other)) >= _ALIKE[same]:
                found.append((share + same + (other.name == part.name) / 2, part, other))
    used: set[int] = set()
    pairs = []
    for _, part, other in sorted(found, key=lambda item: -item[0]):
        if not used & {id(part), id(other)}:
            used |= {id(part), id(other)}
            pairs.append((part, other))
    return pairs


def _alike(one: Part, other: Part) -> float:
    """Share of tokens that both have, of those of the longer one."""
    a, b = Counter(tokens(one.text)), Counter(tokens(other.text))
    return (a & b).total() / max(a.total(), b.total(), 1)
