"""State of each fix in this process (DESIGN §10) and the counters behind it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from .fix import Fix, Place

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

#: From these a fix never comes back in this process: arming is all or nothing, and disarming is for good.
FINAL = frozenset({UNKNOWN_SOURCE, CONFLICT, LATE, FAILED})
#: What is wrong when the engine's code is affected and the fix was wanted.
MISSING = frozenset({CONFLICT, LATE, FAILED})


class Seat(Protocol):
    """What a fix put into the engine at one place (`compat/seats.py`)."""

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


class Finding(NamedTuple):
    """What a correction saw a kernel do. `needed`: whether it has to be corrected; None where it does neither right nor the
    known wrong, so that it is left alone."""

    what: str
    needed: bool | None


class PlainCounters:
    def __init__(self) -> None:
        self.calls = self.corrections = self.rows = 0


class FixState:
    """What became of one fix in this process. `armed` alone decides whether its corrections run.

    `release` and `code` name the code that was found; `changed` is called when the state changes while the engine serves.
    `confirm` is called once, at the first call while armed, and may disarm.
    `findings` are by kernel path: the names that tell it from others; `settled` are the paths that are left as they are.
    `fired`: a correction was needed in this process.
    """

    armed = fired = False
    release: str | None = None
    code: str | None = None
    traceback: str | None = None
    confirm: Callable[[], None] | None = None

    def __init__(
        self,
        fix: Fix,
        base: str = DORMANT,
        reason: str = "no target module is loaded",
        changed: Callable[[], None] = lambda: None,
    ):
        self.fix, self.base, self.reason, self.changed = fix, base, reason, changed
        self.seats: dict[Place, Seat] = {}
        self.counters: Counters = PlainCounters()
        self.findings: dict[tuple[Hashable, ...], Finding] = {}
        self.settled: set[tuple[Hashable, ...]] = set()

    @property
    def state(self) -> str:
        if self.base != INSTALLED:
            return self.base
        needed = {finding.needed for finding in self.findings.values()}
        if needed and True not in needed:
            return UNKNOWN_SOURCE if None in needed else FIXED_UPSTREAM
        return EFFECTIVE if self.counters.calls else INSTALLED

    def found(self, path: tuple[Hashable, ...], finding: Finding) -> None:
        """A kernel path was seen at work for the first time in this process."""
        self.findings[path] = finding
        if not finding.needed:
            self.settled.add(path)
        if finding.needed is None:
            from . import report

            report.warn(self.fix.engine, f"{self.fix.id} leaves a kernel alone: {_named(path)}: {finding.what}")
        self.changed()

    def first_correction(self, rows: int) -> None:
        """The engine's result had to be corrected for the first time in this process, in `rows` rows."""
        self.fired = True
        from . import report

        report.first_correction(self, rows)
        self.changed()

    def settle(self, base: str, reason: str) -> None:
        """Enter a state, unless the fix is in a final one already."""
        if self.base in FINAL:
            return
        was_armed, self.armed = self.armed, base == INSTALLED
        self.base, self.reason = base, reason
        if self.armed:
            for seat in self.seats.values():
                seat.arm()
        elif was_armed:
            for seat in self.seats.values():
                with suppress(Exception):  # the others go all the same
                    seat.disarm()

    def fail(self, reason: str) -> None:
        """Disarm for good: called inside an `except`, whose traceback goes into the record."""
        self.settle(FAILED, reason)  # first: what follows may fail, too
        self.traceback = traceback.format_exc()
        from . import report  # a failure while serving must be heard at once

        report.failed(self)
        self.changed()

    def as_dict(self) -> dict[str, Any]:
        """One row of `attnfix status --json`."""
        counters = self.counters
        findings = [f"{_named(path)}: {finding.what}" for path, finding in list(self.findings.items())]
        return {
            "fix": self.fix.id,
            "state": self.state,
            "reason": "; ".join([self.reason, *findings]),
            "switch": self.fix.switch,
            "release": self.release,
            "code": self.code,
            "counters": {"calls": counters.calls, "corrections": counters.corrections, "rows": counters.rows},
            **({"traceback": self.traceback} if self.traceback else {}),
        }


def _named(path: tuple[Hashable, ...]) -> str:
    return " ".join(map(str, path))
