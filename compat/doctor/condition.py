"""When a bug is hit, as data: conditions over the facts of a deployment, answered with hit, not hit or possible.

    AllOf(Is("attention", "MLA"), Is("prefill backend", "trtllm_mla"))

A fact that nobody gave is never guessed: what depends on it is possible, and the answer names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

HIT, NOT_HIT, POSSIBLE = "hit", "not hit", "possible"
#: Values of a fact that is a switch
ON, OFF = "on", "off"


class Fact(NamedTuple):
    """What is known of one thing: the values it may have (none listed: any), and `why`: what says so, or what would."""

    values: tuple[str | int, ...]
    why: str = ""

    def __str__(self) -> str:
        text = " or ".join(map(str, self.values)) if self.values else "unknown"
        return f"{text} ({self.why})" if self.why else text


def known(value: str | int, why: str = "") -> Fact:
    return Fact((value,), why)


def unknown(why: str) -> Fact:
    """A fact that may have any value; `why` says what would settle it."""
    return Fact((), why)


#: fact by name; raises KeyError for a name that the engine has no fact of
Facts = Callable[[str], Fact]


class Answer(NamedTuple):
    """`reasons` are sentences: of a hit all that make it one, else what excludes it or what is missing."""

    verdict: str
    reasons: tuple[str, ...]


class Condition(Protocol):
    def __call__(self, facts: Facts) -> Answer: ...

    @property
    def names(self) -> frozenset[str]:
        """The facts it asks for."""
        ...


class _OfOne:
    """A condition on one fact; `holds` says of one value whether it fulfils it."""

    name: str

    def holds(self, value: str | int) -> bool:
        raise NotImplementedError

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, facts: Facts) -> Answer:
        fact = facts(self.name)
        answers = {self.holds(value) for value in fact.values} or {True, False}
        verdict = POSSIBLE if len(answers) > 1 else HIT if answers.pop() else NOT_HIT
        return Answer(verdict, (f"{self.name}: {fact}",))


class Is(_OfOne):
    """The fact has one of the values."""

    def __init__(self, name: str, *wanted: str | int):
        self.name, self.wanted = name, wanted

    def holds(self, value: str | int) -> bool:
        return value in self.wanted


#: What a reason ends with that nothing of a launch decides
UNSEEN = "unknown (the launch command does not say it)"


class Unseen:
    """What no launch line tells, such as what another server does: always possible."""

    names: frozenset[str] = frozenset()

    def __init__(self, what: str):
        self.what = what

    def __call__(self, facts: Facts) -> Answer:
        return Answer(POSSIBLE, (f"{self.what}: {UNSEEN}",))


class Given(_OfOne):
    """An option, as `--page-size`, or a variable, as `$SGLANG_X`, is there and does not switch off."""

    def __init__(self, name: str):
        self.name = name

    def holds(self, value: str | int) -> bool:
        return str(value).lower() not in (OFF, "false", "0", "none", "")


class Since(_OfOne):
    """The release is that one or a later one: for what a release made the default."""

    name = "release"

    def __init__(self, first: str):
        self.first = first

    def holds(self, value: str | int) -> bool:
        from packaging.version import Version  # the gate runs without it, and in processes that serve

        return Version(str(value)) >= Version(self.first)


class Above(_OfOne):
    """The fact is a number above the bound; an option that is not given is below all."""

    def __init__(self, name: str, bound: int):
        self.name, self.bound = name, bound

    def holds(self, value: str | int) -> bool:
        return value != OFF and int(value) > self.bound


class _OfSeveral:
    def __init__(self, *parts: Condition):
        self.parts = parts

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(part.names for part in self.parts))

    def _answer(self, facts: Facts, settled_by: str, otherwise: str) -> Answer:
        """One part with the verdict `settled_by` settles it; else one that is possible; else all agree on `otherwise`."""
        answers = [part(facts) for part in self.parts]
        found = {answer.verdict for answer in answers}
        verdict = settled_by if settled_by in found else POSSIBLE if POSSIBLE in found else otherwise
        reasons = [reason for answer in answers if answer.verdict == verdict for reason in answer.reasons]
        return Answer(verdict, tuple(dict.fromkeys(reasons)))


class AllOf(_OfSeveral):
    def __call__(self, facts: Facts) -> Answer:
        return self._answer(facts, NOT_HIT, HIT)


class AnyOf(_OfSeveral):
    def __call__(self, facts: Facts) -> Answer:
        return self._answer(facts, HIT, NOT_HIT)


class Not:
    """The other way around; what is possible stays possible."""

    def __init__(self, part: Condition):
        self.part, self.names = part, part.names

    def __call__(self, facts: Facts) -> Answer:
        answer = self.part(facts)
        return answer._replace(verdict={HIT: NOT_HIT, NOT_HIT: HIT}.get(answer.verdict, POSSIBLE))
