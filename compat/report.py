"""What attnfix says in a process: through the engine's own logger, so that it has the engine's format and place."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Iterable

from . import ledger
from .engines import Engine
from .states import INSTALLED, MISSING, UNKNOWN_SOURCE, FixState

EXIT_STRICT = 78  # EX_CONFIG
_said: set[str] = set()


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


def _once(engine: str, level: int, message: str) -> None:
    if message not in _said:
        _said.add(message)
        logger(engine).log(level, "%s", message)


def _main_process() -> bool:
    return multiprocessing.parent_process() is None


def warn(engine: str, message: str) -> None:
    """A WARNING from the main process, the same text at INFO from its children: one line, however many ranks."""
    _once(engine, logging.WARNING if _main_process() else logging.INFO, f"attnfix: {message}")


def summary(engine: Engine, version: str | None, states: Iterable[FixState]) -> None:
    """One line on what was installed and one on what was not, once the fixes of this module have settled."""
    states = [state for state in states if state.fix.engine == engine.name]
    armed = [state for state in states if state.base == INSTALLED]
    if armed:
        names = ", ".join(state.fix.id for state in armed)
        code = ", ".join(dict.fromkeys(f"code of {state.release}" if state.release else state.reason for state in armed))
        _once(engine.name, logging.INFO, f"attnfix: {names} installed in {engine.name} {version or '?'} ({code})")
    problems = []
    for state in states:
        if state.base in MISSING:
            problems.append(f"{state.fix.id} is not installed: {state.reason}")
        elif state.base == UNKNOWN_SOURCE and in_doubt(state, version):
            problems.append(f"{state.fix.id} left alone, unknown source: {state.reason}")
        else:
            _quiet(engine.name, f"{state.fix.id}: {state.state} ({state.reason})")
    if new := [problem for problem in problems if problem not in _said]:
        _said.update(new)
        warn(engine.name, "; ".join(new))


def _quiet(engine: str, message: str) -> None:
    logger(engine).debug("attnfix: %s", message)


def in_doubt(state: FixState, version: str | None) -> bool:
    """Whether unknown code may well have the bug: its version lies from the first affected release up to the fix.

    So does one that cannot be read. This sets how loud to be, and nothing else.
    """
    try:
        return version is None or ledger.load(state.fix).may_be_affected(version)
    except ledger.LedgerError:
        return True


def failed(state: FixState) -> None:
    """Said at once: an armed fix has disarmed itself while serving."""
    _once(state.fix.engine, logging.ERROR, f"attnfix: {state.fix.id} disarmed: {state.reason}")


def unmet(state: FixState, version: str | None) -> bool:
    """Whether the engine's code is affected, or unknown and may well be, and the fix does not stand."""
    return state.base in MISSING or (state.base == UNKNOWN_SOURCE and in_doubt(state, version))


def end_process(states: Iterable[FixState]) -> None:
    """ATTNFIX_STRICT, or a fix asked for by name, is not met: one line, and the process ends before it serves."""
    lines = "; ".join(f"{state.fix.id}: {state.state} ({state.reason})" for state in states)
    refuse(f"a required fix is not installed: {lines}")


def refuse(reason: str) -> None:
    """End the process before it serves."""
    print(f"attnfix: refusing to serve, {reason}", file=sys.stderr, flush=True)
    os._exit(EXIT_STRICT)
