"""What a fix is: data first. Every folder under `patches/` declares one `Fix`; all tables and log lines come from it.

Small records are named tuples or plain classes, here and in what an engine's import brings in: to make one dataclass takes
1-2 ms, of the 50 ms that an import may cost in all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Concatenate, NamedTuple, Protocol, TypeAlias

from .doctor.condition import Condition

#: How bad a bug is for whoever runs the engine
WRONG_OUTPUT, CRASH, SLOWER = "wrong output", "crash", "slower"
#: `needed(target, instance, …)`: something false where this call has nothing to correct. It names the arguments it looks at, as
#: the engine's function does, and changes nothing in the engine; target: `wrapper.Correction`
Needed: TypeAlias = Callable[..., Any]
#: `correct(call, instance, …)`: what the caller gets. It names the arguments that it uses, too
Correct: TypeAlias = "Callable[Concatenate[Call, Any, ...], Any]"


class Call(Protocol):
    """One call that is corrected, as `correct` has it; `wrapper.Call` is that.

    `target`: the `wrapper.Correction` that runs; `found`: what `needed` returned; `failed`: a function from `guard` or `watch`
    raised.
    """

    target: Any
    found: Any
    failed: bool

    def __call__(self, **changes: Any) -> Any:
        """What the engine's function returns for the arguments it was called with; `changes` go in by name."""

    def run(self, function: Callable[..., Any], *instance: Any) -> Any:
        """The same of a `function` that stands for the engine's."""

    def corrected(self, rows: int = 0) -> None:
        """Count one correction of `rows` rows, a number that the host knows."""

    def guard(self, ours: Callable[..., Any], stock: Callable[..., Any], *, plans: bool = False) -> Callable[..., Any]:
        """`ours`, for the engine to call; `stock` runs in its place where it raises."""

    def watch(self, stock: Callable[..., Any], after: Callable[..., Any]) -> Callable[..., Any]:
        """`stock`, for the engine to call; `after(result, …)` gets what it returned."""


class CodePath(NamedTuple):
    """Where a definition lives, written `module:Class.method` as in entry points; `module:` is the whole module."""

    module: str
    qualname: str

    @classmethod
    def parse(cls, text: str) -> CodePath:
        module, colon, qualname = text.partition(":")
        if not colon or not module:
            raise ValueError(f"{text!r} is not of the form 'module:Class.method'")
        return cls(module, qualname)

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"

    @property
    def owner(self) -> CodePath:
        """The class or module that holds it."""
        return CodePath(self.module, self.qualname.rpartition(".")[0])


class _OnCodePaths:
    """What all targets have: `code_paths`, where it lives in different releases. The first one that a release has is taken."""

    def __init__(self, paths: tuple[str, ...]):
        self.paths = paths

    @cached_property
    def code_paths(self) -> tuple[CodePath, ...]:
        return tuple(map(CodePath.parse, self.paths))

    @property
    def name(self) -> str:
        return self.code_paths[0].qualname

    @property
    def witnesses(self) -> tuple[CodePath, ...]:
        """The code paths whose code the verdict depends on."""
        return self.code_paths


class Target(_OnCodePaths):
    """One function or method that a fix wraps: `correct` runs where `needed` says so; without it, at every call.

    `repeatable`: the function writes no input, no cache and no plan that it does not write anew, and holds no collective. Only
    then is it run once more, as its caller called it, where a correction fails that changed its call or broke it off.
    """

    def __init__(self, correct: Correct, paths: tuple[str, ...], needed: Needed | None = None, *, repeatable: bool = False):
        super().__init__(paths)
        self.correct, self.needed, self.repeatable = correct, needed, repeatable


class Override(_OnCodePaths):
    """A method that the class at `paths` inherits from the one at `of`: the wrapper is set on the heir alone."""

    def __init__(
        self, correct: Correct, paths: tuple[str, ...], of: tuple[str, ...], needed: Needed | None = None, *,
        repeatable: bool = False
    ):  # fmt: skip
        super().__init__(paths)
        self.correct, self.of, self.needed, self.repeatable = correct, of, needed, repeatable

    @property
    def witnesses(self) -> tuple[CodePath, ...]:
        return self.code_paths + tuple(map(CodePath.parse, self.of))


class Attribute(_OnCodePaths):
    """A class attribute that has `value` while the fix is armed, whether or not the class has one of its own."""

    def __init__(self, value: Any, paths: tuple[str, ...]):
        super().__init__(paths)
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


class WorstCost(NamedTuple):
    """The lowest tokens/s of a server where the fix corrects in nearly every step, over those of the same server without it.

    `low` and `high`: the 95 % interval of `tokens`; `traffic`: the requests that cost so much, behind "where"; `run`: its file
    in docs/evidence/runs.
    """

    tokens: float
    low: float
    high: float
    traffic: str
    run: str

    @property
    def figure(self) -> str:
        return f"{self.tokens:.3f} ({self.low:.3f}-{self.high:.3f})"

    def __str__(self) -> str:
        return f"{self.figure} of the tokens/s without it, where {self.traffic} ({self.run})"


class Judgeable:
    """What a process needs of a fix to judge the code that lies here; the names of a fix follow from its id."""

    id: str
    #: Whether it is on without being asked for
    default: bool
    #: Everything the verdict depends on: the targets' code paths, then the other witnesses
    code_paths: tuple[CodePath, ...]
    target_modules: frozenset[str]

    def whole(self) -> Fix:
        """All that its folder declares."""
        raise NotImplementedError

    @cached_property
    def engine(self) -> str:
        return self.id.partition(".")[0]

    @cached_property
    def switch(self) -> str:
        """Environment variable of this fix, e.g. ATTNFIX_SGLANG_ZERO_KV_ROWS."""
        return "ATTNFIX_" + self.id.replace(".", "_").replace("-", "_").upper()

    @property
    def package(self) -> str:
        """Name of the folder under patches/, e.g. sglang.zero_kv_rows."""
        return self.id.replace("-", "_")

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Those of its code paths, each once, in their order."""
        return tuple(dict.fromkeys(code_path.module for code_path in self.code_paths))


@dataclass(frozen=True, eq=False, kw_only=True)
class Fix(Judgeable):
    """One bug, one id, one switch.

    `symptoms` are those of `attnfix.compat.symptoms` that its operator sees, the most telling first.
    `witnesses` are definitions beside the targets whose code decides whether the bug is there; `default` says whether the
    fix is on without being asked for, and `default_reason` why. `cost` is what it costs where it runs, and `worst_cost` the
    most that servers were seen to pay; `expect` how to try it on one replica and what shift in output to expect; `avoid` how to
    get by without attnfix, or that nothing does. `examined` are the spans of releases that the ledger judges: without them, all
    that attnfix supports. `remove_when` is said where the release with the bug corrected does not say it.
    The targets stand together or not at all, unless they are `independent`: places of one fault that different deployments
    load, each corrected as soon as it is there. `harm` is how bad the bug is; `hits` which deployments reach it, over the
    facts that the engine's module of facts makes. `stays_out` is where calls are left as they are although the bug is hit.
    `ranks_alike`: what it decides must be the same on all ranks of a group, as
    graph or eager, rows of a batch, the number of chunks: a rank that goes on without it would leave the others waiting.
    `look_does`: what a look does beside looking, for which it may not run alone (ATTNFIX=observe).
    """

    id: str
    title: str
    symptom: str
    symptoms: tuple[str, ...]
    cause: str
    correction: str
    upstream: Upstream
    hardware: str
    targets: tuple[Target | Override | Attribute, ...]
    cost: str
    expect: str
    harm: str = WRONG_OUTPUT
    hits: Condition | None = None
    stays_out: Condition | None = None
    witnesses: tuple[str, ...] = ()
    examined: tuple[str, ...] = ()
    independent: bool = False
    ranks_alike: bool = False
    default: bool = False
    default_reason: str = "not proven on a GPU yet"
    remove_when: str | None = None
    avoid: str | None = None
    worst_cost: WorstCost | None = None
    look_does: str | None = None

    def whole(self) -> Fix:
        return self

    @property
    def avoidable(self) -> bool:
        """Whether `avoid` names a way within the release."""
        return self.avoid is not None and not self.avoid.startswith("Nothing ")

    @cached_property
    def code_paths(self) -> tuple[CodePath, ...]:  # type: ignore[override]  # made of what is declared
        targets = [code_path for target in self.targets for code_path in target.witnesses]
        return tuple(dict.fromkeys(targets + [CodePath.parse(text) for text in self.witnesses]))

    @cached_property
    def unobservable(self) -> str | None:
        """Why its looks do not tell alone in which calls it would run (ATTNFIX=observe); None where they do."""
        blind = [target.name for target in self.targets if isinstance(target, Attribute) or target.needed is None]
        return f"{blind[0]} has no look" if blind else self.look_does

    @cached_property
    def target_modules(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(code_path.module for target in self.targets for code_path in target.code_paths)
