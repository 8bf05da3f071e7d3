"""What a fix is: data first. Every folder under `patches/` declares one `Fix`; all tables and log lines come from it.

Small records are named tuples or plain classes, here and in what an engine's import brings in: to make one dataclass takes
1-2 ms, of the 50 ms that an import may cost in all.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from .condition import Condition

#: How bad a bug is for whoever runs the engine
WRONG_OUTPUT, CRASH, SLOWER = "wrong output", "crash", "slower"
#: What a correction returns, without having called `wrapped`, where this call has nothing to correct: the engine's function is
#: then called with these arguments. To call `wrapped` itself is the same, and dearer
NOT_NEEDED = object()
#: wrapt's form of a wrapper: `correction(wrapped, instance, args, kwargs) -> result`, or NOT_NEEDED
Correction = Callable[[Any, Any, tuple, dict], Any]
#: Recognises, in full, a fault that no release has: `structure(locate)` gives a short reason, or None for any other code.
#: `locate("module:Class.method")` gives the definition of one of the fix's places inside the heads of its classes, None where
#: there is none.
Structure = Callable[[Callable[[str], "ast.AST | None"]], "str | None"]


class Place(NamedTuple):
    """Where a definition lives, written `module:Class.method` as in entry points; `module:` is the whole module."""

    module: str
    qualname: str

    @classmethod
    def parse(cls, text: str) -> Place:
        module, colon, qualname = text.partition(":")
        if not colon or not module:
            raise ValueError(f"{text!r} is not of the form 'module:Class.method'")
        return cls(module, qualname)

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"

    @property
    def owner(self) -> Place:
        """The class or module that holds it."""
        return Place(self.module, self.qualname.rpartition(".")[0])


class _At:
    """What all targets have: `places`, its homes over the releases; the first one that a release has is taken."""

    def __init__(self, at: tuple[str, ...]):
        self.at = at

    @cached_property
    def places(self) -> tuple[Place, ...]:
        return tuple(map(Place.parse, self.at))

    @property
    def name(self) -> str:
        return self.places[0].qualname

    @property
    def witnesses(self) -> tuple[Place, ...]:
        """The places whose code the verdict depends on."""
        return self.places


class Target(_At):
    """One function or method that a fix wraps.

    `correction` gets every argument, defaults included: by position, as the engine's signature has them, or, for targets whose
    signature differs between releases, `by_name`. Where a parameter has but one way in, as the caller wrote them.
    """

    def __init__(self, correction: Correction, at: tuple[str, ...], by_name: bool = False):
        super().__init__(at)
        self.correction, self.by_name = correction, by_name


class Override(_At):
    """A method that the class at `at` inherits from the one at `of`: the wrapper is set on the heir alone."""

    def __init__(self, correction: Correction, at: tuple[str, ...], of: tuple[str, ...]):
        super().__init__(at)
        self.correction, self.of = correction, of

    @property
    def witnesses(self) -> tuple[Place, ...]:
        return self.places + tuple(map(Place.parse, self.of))


class Attribute(_At):
    """A class attribute that has `value` while the fix is armed, whether or not the class has one of its own."""

    def __init__(self, value: Any, at: tuple[str, ...]):
        super().__init__(at)
        self.value = value


class Upstream(NamedTuple):
    """Where the engine's own project speaks of the bug; `report` is our page under docs/upstream where it does not, or not yet
    in a change of its code."""

    repository: str
    pull: int | None = None
    issue: int | None = None
    report: str | None = None

    @property
    def links(self) -> dict[str, str]:
        """name -> address; that of a report is a path in this project."""
        home = f"https://github.com/{self.repository}"
        found = {f"#{self.pull}": f"{home}/pull/{self.pull}"} if self.pull else {}
        if self.issue:
            found[f"issue {self.issue}"] = f"{home}/issues/{self.issue}"
        if self.report:
            found["report"] = f"docs/upstream/{self.report}.md"
        return found

    def __str__(self) -> str:
        return f"{self.repository}: {', '.join(self.links)}"


@dataclass(frozen=True, eq=False)
class Fix:
    """One bug, one id, one switch.

    `witnesses` are definitions beside the targets whose code decides whether the bug is there; `default` says whether the
    fix is on without being asked for, and `default_reason` why; `examined` are the spans of releases that the ledger judges.
    `cost` is what it costs where it runs; `expect` how to try it on one replica and what shift in output to expect.
    `structure` recognises code that no ledger knows. The targets stand together or not at all, unless they are `independent`:
    places of one fault that different deployments load, each corrected as soon as it is there. `harm` is how bad the bug is;
    `hits` which deployments reach it, over the facts that the engine's module of facts makes.
    """

    id: str
    title: str
    symptom: str
    cause: str
    correction: str
    upstream: Upstream
    hardware: str
    default: bool
    default_reason: str
    targets: tuple[Target | Override | Attribute, ...]
    witnesses: tuple[str, ...]
    examined: tuple[str, ...]
    remove_when: str
    cost: str
    expect: str
    structure: Structure | None = None
    independent: bool = False
    harm: str = WRONG_OUTPUT
    hits: Condition | None = None

    @property
    def engine(self) -> str:
        return self.id.partition(".")[0]

    @property
    def switch(self) -> str:
        """Environment variable of this fix, e.g. ATTNFIX_SGLANG_ZERO_KV_ROWS."""
        return "ATTNFIX_" + self.id.replace(".", "_").replace("-", "_").upper()

    @property
    def package(self) -> str:
        """Name of the folder under patches/, e.g. sglang.zero_kv_rows."""
        return self.id.replace("-", "_")

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Everything the verdict depends on, in the ledger's order: the targets' places, then the other witnesses."""
        targets = [place for target in self.targets for place in target.witnesses]
        return tuple(dict.fromkeys(targets + [Place.parse(text) for text in self.witnesses]))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Those of its places, each once, in the ledger's order."""
        return tuple(dict.fromkeys(place.module for place in self.places))

    @cached_property
    def target_modules(self) -> frozenset[str]:
        return frozenset(place.module for target in self.targets for place in target.places)
