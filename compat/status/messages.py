"""What attnfix says in a process: through the engine's own logger, so that it has the engine's format and place."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from .. import untrusted
from ..engines import Engine
from ..gate import ledger
from .deferred_message import say_with_next
from .fix_state import (
    EFFECTIVE,
    FAILED,
    INSTALLED,
    MISSING,
    OBSERVED,
    UNKNOWN_SOURCE,
    Event,
    FixState,
)

EXIT_STRICT = 78  # EX_CONFIG
_said: dict[object, object] = {}
_armed: dict[str, list[FixState]] = {}  # by engine: fixes that no line has named yet


def logger(engine: str) -> logging.Logger:
    """`<engine>.attnfix`; with ATTNFIX_LOG set, its lines go to standard error at that level whatever the engine does."""
    log = logging.getLogger(f"{engine}.attnfix")
    level = os.environ.get("ATTNFIX_LOG", "").upper()
    if level and not log.handlers and isinstance(logging.getLevelName(level), int):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s [%(process)d] %(message)s"))
        log.addHandler(handler)
        log.setLevel(level)
        log.propagate = False
    return log


def _once(engine: str, level: int, message: str, states: Iterable[FixState] = (), key: object = None) -> None:
    """Said once, when the program logs that level: a rank does from the import of its engine's logging on. Where its logging
    raises, not at all."""
    with suppress(Exception):
        if logger(engine).isEnabledFor(level) and _first(key or message):
            _log(engine, level, message, states)


def _log(engine: str, level: int, message: str, states: Iterable[FixState] = ()) -> None:
    """One record. Formatters of JSON print its field `attnfix`, which has a row for each of `states`; others leave it out."""
    fixes = [{"fix": state.fix.id, "state": state.state, "release": state.release} for state in states]
    extra = {"attnfix": {"engine": engine, "fixes": fixes}}
    logger(engine).log(level, "%s", untrusted.line(message), extra=extra)


def _first(key: object) -> bool:
    """Whether `key` was never said: one answer is yes, in however many threads it is asked."""
    mine = object()
    return _said.setdefault(key, mine) is mine


def _main_process() -> bool:
    """Neither a child nor a rank that Ray or torchrun has started."""
    started_by_ray = sys.argv[:1] and sys.argv[0].endswith("default_worker.py")
    return multiprocessing.parent_process() is None and not started_by_ray and os.environ.get("RANK", "0") == "0"


def warn(engine: str, message: str, *states: FixState) -> None:
    """A WARNING from the main process, the same text at INFO from its children: one line, however many ranks."""
    _once(engine, logging.WARNING if _main_process() else logging.INFO, f"attnfix: {message}", states)


def error(engine: str, message: str) -> None:
    """An ERROR, once in each process: the main one may load no code of a fix."""
    _once(engine, logging.ERROR, f"attnfix: {message}")


def summary(engine: Engine, version: str | None, states: Iterable[FixState]) -> None:
    """One line on what was installed and one on what was not, once the fixes of this module have settled."""
    states = [state for state in states if state.fix.engine == engine.name]
    if new := [state for state in states if state.base in (INSTALLED, OBSERVED) and _first(("installed", state.fix.id))]:
        _armed.setdefault(engine.name, []).extend(new)
        if logger(engine.name).handlers:  # ATTNFIX_LOG: heard whatever the engine does
            _installed(engine.name, version)
        else:
            say_with_next(engine.name, partial(_installed, engine.name, version))
    problems, debugging = {}, logger(engine.name).isEnabledFor(logging.DEBUG)
    for state in states:
        if state.base in MISSING:
            problems[f"{state.fix.id} is not installed: {state.reason}"] = state
        elif state.base == UNKNOWN_SOURCE and in_doubt(state, version):
            problems[f"{state.fix.id} left alone, unknown source: {state.reason}"] = state
        elif debugging:
            _log(engine.name, logging.DEBUG, f"attnfix: {state.fix.id}: {state.state} ({state.reason})", [state])
    if problems := {problem: state for problem, state in problems.items() if _first(problem)}:
        warn(engine.name, "; ".join(problems), *problems.values())


def _installed(engine: str, version: str | None) -> None:
    """Name what is installed and was not named yet. Runs inside the engine's logging: lets no exception out."""
    with suppress(Exception):
        states = _armed.pop(engine, [])
        for did, base in (("installed", INSTALLED), ("observes", OBSERVED)):
            if these := [state for state in states if state.base == base]:
                _log(engine, logging.INFO, _names(engine, version, did, these), these)


def _names(engine: str, version: str | None, did: str, states: list[FixState]) -> str:
    """The line on `states`: the first process of a server that installs a fix names it, the others count it."""
    from .recorder import own_version  # which imports this module

    before = _named_before()
    mine = [state.fix.id for state in states if state.fix.id not in before]
    others = [state.fix.id for state in states if state.fix.id in before]
    code = ", ".join(dict.fromkeys(f"code of {state.release}" if state.release else state.reason for state in states))
    count = f"{len(states)} fix{'es' if states[1:] else ''}"
    told = f"attnfix: {own_version() or 'it'} {did} {count} in {engine} {version or '?'} ({code})"
    then = "nothing is corrected (ATTNFIX=observe)" if did == "observes" else "ATTNFIX=0 turns all off"
    named = [f"{', '.join(mine)}; {then}"] if mine else []
    if others:
        where = ", ".join(dict.fromkeys(f"{before[each]}" for each in others))
        named.append((f"{len(others)} " if mine else "") + f"as in process {where}")
    return f"{told}: {'; '.join(named)}"


def _named_before() -> dict[str, int]:
    """The fixes that a process of this server installed which began before this one, with its pid; none where no record
    tells."""
    from . import metrics, process_record

    found: dict[str, int] = {}
    with suppress(Exception):  # the line is said all the same
        records = sorted(process_record.of_server(metrics.server()), key=lambda text: (text["activated"] or 0, text["pid"]))
        at = next((place for place, text in enumerate(records) if text["pid"] == os.getpid()), 0)
        for text in records[:at]:
            for row in text["fixes"]:
                if row["state"] in (INSTALLED, EFFECTIVE, OBSERVED):
                    found.setdefault(row["fix"], text["pid"])
    return found


def tell(state: FixState, event: Event, detail: Any) -> None:
    """Say what a fix's state tells (`FixState.on_event`); a mere change is not worth a line."""
    if event == Event.FIRST_CORRECTION:
        _first_correction(state, detail)
    elif event == Event.FIRST_NEEDED:
        _first_needed(state)
    elif event == Event.BLINDED:
        _once(state.fix.engine, logging.WARNING, f"attnfix: {state.fix.id} is not observed any more: {state.reason}", [state])
    elif event == Event.DISARMED:
        _once(state.fix.engine, logging.ERROR, f"attnfix: {state.fix.id} disarmed: {state.reason}", [state])
    elif event == Event.LEFT_OUT:
        _once(state.fix.engine, logging.WARNING, f"attnfix: {state.fix.id} corrects nothing here: {detail}", [state])
    elif event == Event.KERNEL_LEFT_ALONE:
        warn(state.fix.engine, f"{state.fix.id} does not patch a kernel: {detail}", state)


def _first_correction(state: FixState, rows: int) -> None:
    """One line in each process whose serving a fix has changed. Called between kernel launches: lets no exception out."""
    with suppress(Exception):
        counted = f" ({rows} rows)" if rows else ""
        message = f"attnfix: {state.fix.id} corrected its first call{counted}: {state.fix.whole().title}"
        _once(state.fix.engine, logging.INFO, message, [state], ("corrected", state.fix.id, os.getpid()))


def _first_needed(state: FixState) -> None:
    """The same of a process that observes."""
    with suppress(Exception):
        message = f"attnfix: {state.fix.id} would have run on this call (ATTNFIX=observe): {state.fix.whole().title}"
        _once(state.fix.engine, logging.INFO, message, [state], ("needed", state.fix.id, os.getpid()))


def in_doubt(state: FixState, version: str | None) -> bool:
    """Whether unknown code may well have the bug: its version lies from the first affected release up to the fix.

    So does one that cannot be read. This sets how loud to be, and nothing else.
    """
    try:
        return version is None or ledger.load(state.fix).may_be_affected(version)
    except ledger.LedgerError:
        return True


def skipped(state: FixState, reason: str) -> None:
    """A call went without its correction, for want of memory, and is right all the same. Lets no exception out."""
    with suppress(Exception):
        message = f"attnfix: {state.fix.id} skipped a correction; the engine's own result is right, only slower: {reason}"
        _once(state.fix.engine, logging.WARNING, message, [state], ("skipped", state.fix.id))


def unmet(state: FixState, version: str | None) -> bool:
    """Whether the engine's code is affected, or unknown and may well be, and the fix does not stand."""
    return state.base in MISSING or (state.base == UNKNOWN_SOURCE and in_doubt(state, version))


def end_process(states: Iterable[FixState]) -> None:
    """ATTNFIX_STRICT, or a fix asked for by name, is not met: one line, and the process ends before it serves."""
    lines = "; ".join(f"{state.fix.id}: {state.state} ({state.reason})" for state in states)
    refuse(f"a required fix is not installed: {lines}")


def end_serving(state: FixState, reason: str) -> None:
    """The correction of a required fix failed while the engine served: one line, and the process ends."""
    try:
        state.settle(FAILED, reason)
        state.changed()  # the record outlives the process
    finally:
        refuse(f"a required fix failed: {state.fix.id} ({reason})")


def refuse(reason: str) -> None:
    """End the process before it serves on, whether or not standard error takes the line."""
    try:
        if sys.stderr is not None:
            print(f"attnfix: refusing to serve, {untrusted.line(reason)}", file=sys.stderr, flush=True)
    finally:
        os._exit(EXIT_STRICT)
