"""State of each fix in this process and the counters behind it. What each state means: docs/safety.md, "States"."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple, Protocol

from ..fix import CodePath, Judgeable

DORMANT = "dormant"
PENDING = "pending"
OFF = "off"
NOT_AFFECTED = "not affected"
FIXED_UPSTREAM = "fixed upstream"
UNKNOWN_SOURCE = "unknown source"
CONFLICT = "conflict"
LATE = "late"
FAILED = "failed"
INSTALLED = "installed"
EFFECTIVE = "effective"
OBSERVED = "observed"

#: From these a fix never comes back in this process: arming is all or nothing, and disarming is for good.
FINAL = frozenset({UNKNOWN_SOURCE, CONFLICT, LATE, FAILED})
#: Why nothing at all is armed: the reason of each fix whose code has the bug
REFUSALS = (
    "ATTNFIX_ONLY names no fix of attnfix",
    "ATTNFIX_FIXSET names another set of fixes",
    "ATTNFIX_STRICT=1 refuses ATTNFIX=observe",
)
#: What is wrong when the engine's code is affected and the fix was wanted.
MISSING = frozenset({CONFLICT, LATE, FAILED})


def refusals(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why nothing at all is armed in a process with these rows of `attnfix status`; none where that is not so."""
    return sorted({row["reason"] for row in rows if row["state"] == OFF}.intersection(REFUSALS))


class Event(Enum):
    """What `FixState` tells while the engine serves, and what comes with it as `detail`."""

    CHANGED = "the state, or what a kernel was seen to do"
    KERNEL_LEFT_ALONE = "a kernel does neither right nor the known wrong: which one, and what it does"
    LEFT_OUT = "calls are left as they are, for this reason"
    FIRST_CORRECTION = "the first correction of this process: its number of rows"
    FIRST_NEEDED = "the first call of this process in which a correction would have run"
    DISARMED = "a correction failed"
    BLINDED = "a look failed that runs alone"


OnEvent = Callable[["FixState", Event, Any], None]


class PatchPoint(Protocol):
    """What a fix put into the engine at one place (`compat/arming/patch_points.py`)."""

    @property
    def stands(self) -> bool: ...
    def arm(self) -> None: ...
    def disarm(self) -> None: ...
    def withdraw(self) -> None: ...


class Counters(Protocol):
    """calls: of a target with the fix armed; corrections: that were needed; rows: corrected."""

    calls: int
    corrections: int
    rows: int


class Looks(Protocol):
    """Of a fix that is observed. calls: that were looked at; needed: of these, those whose correction would have run."""

    calls: int
    needed: int


class KernelObservation(NamedTuple):
    """What a correction saw a kernel do. `needed`: whether it has to be corrected; None where it does neither right nor the
    known wrong, so that it is left alone."""

    what: str
    needed: bool | None


class PlainCounters:
    def __init__(self) -> None:
        self.calls = self.corrections = self.rows = self.needed = 0


class FixState:
    """What became of one fix in this process. `armed` alone decides whether its corrections run, `observed` whether its looks
    run alone. `observable`: whether they may, where it was asked for; None where it was not.

    `release` and `code` name the code that was found. `recheck_on_first_call` is called once, at the first call while armed,
    and may disarm. `observations` are by kernel path: the names that tell it from others; `left_alone` are the paths that are
    left as they are, `left_out` is why calls are. `fired`: a correction was needed in this process. `on_event(state, event,
    detail)` is called when something happens while the engine serves.
    """

    armed = observed = fired = False
    observable: bool | None = None
    release: str | None = None
    code: str | None = None
    left_out: str | None = None
    traceback: str | None = None
    recheck_on_first_call: Callable[[], None] | None = None

    def __init__(
        self,
        fix: Judgeable,
        base: str = DORMANT,
        reason: str = "not loaded yet (normal)",
        on_event: OnEvent = lambda state, event, detail: None,
    ):
        self.fix, self.base, self.reason, self._on_event = fix, base, reason, on_event
        self.patch_points: dict[CodePath, PatchPoint] = {}
        self.counters: Counters = PlainCounters()
        self.looks: Looks = PlainCounters()
        self.observations: dict[tuple[Hashable, ...], KernelObservation] = {}
        self.left_alone: set[tuple[Hashable, ...]] = set()

    @property
    def state(self) -> str:
        if self.base != INSTALLED:
            return self.base
        if self.left_out and not self.counters.corrections:
            return OFF
        needed = {observation.needed for observation in self.observations.values()}
        if needed and True not in needed:
            return UNKNOWN_SOURCE if None in needed else FIXED_UPSTREAM
        return EFFECTIVE if self.counters.calls else INSTALLED

    def found(self, path: tuple[Hashable, ...], observation: KernelObservation) -> None:
        """A kernel path was seen at work for the first time in this process."""
        self.observations[path] = observation
        if not observation.needed:
            self.left_alone.add(path)
        event = Event.KERNEL_LEFT_ALONE if observation.needed is None else Event.CHANGED
        self._on_event(self, event, f"{_named(path)}: {observation.what}")

    def leave_out(self, reason: str) -> None:
        """Calls are left as they are, since a correction would change what others read: said once in this process."""
        if self.left_out is None:
            self.left_out = reason
            self._on_event(self, Event.LEFT_OUT, reason)

    def first_correction(self, rows: int) -> None:
        """The engine's result had to be corrected for the first time in this process, in `rows` rows."""
        self.fired = True
        self._on_event(self, Event.FIRST_CORRECTION, rows)

    def first_needed(self) -> None:
        """A correction would have run for the first time in this process."""
        self.fired = True
        self._on_event(self, Event.FIRST_NEEDED, "")

    def changed(self) -> None:
        """Tell that the state has changed while the engine serves."""
        self._on_event(self, Event.CHANGED, "")

    def settle(self, base: str, reason: str) -> None:
        """Enter a state, unless the fix is in a final one already."""
        if self.base in FINAL:
            return
        was_armed, self.armed, self.observed = self.armed, base == INSTALLED, base == OBSERVED
        self.base, self.reason = base, reason
        if self.armed:
            for point in self.patch_points.values():
                point.arm()
        elif was_armed:
            for point in self.patch_points.values():
                with suppress(Exception):  # the others go all the same
                    point.disarm()

    def fail(self, reason: str, error: Exception | None = None) -> None:
        """Disarm for good. The traceback of `error` goes into the record, or that of the `except` in which this is called."""
        event = Event.BLINDED if self.observed else Event.DISARMED
        self.settle(FAILED, reason)  # first: what follows may fail, too
        self.traceback = "".join(traceback.format_exception(error)) if error else traceback.format_exc()
        self._on_event(self, event, "")

    def as_dict(self) -> dict[str, Any]:
        """One row of `attnfix status --json`."""
        counters = self.counters
        left_out = [self.left_out] if self.left_out else []
        observations = [f"{_named(path)}: {observation.what}" for path, observation in list(self.observations.items())]
        return {
            "fix": self.fix.id,
            "state": self.state,
            "reason": "; ".join([self.reason, *left_out, *observations]),
            "switch": self.fix.switch,
            "release": self.release,
            "code": self.code,
            "counters": {"calls": counters.calls, "corrections": counters.corrections, "rows": counters.rows},
            **({} if self.observable is None else {"observable": self.observable}),
            **({"observed": {"calls": self.looks.calls, "needed": self.looks.needed}} if self.observable else {}),
            **({"traceback": self.traceback} if self.traceback else {}),
        }


def _named(path: tuple[Hashable, ...]) -> str:
    return " ".join(map(str, path))
