"""`attnfix status`: is attnfix active in this Python, what would it patch here, and what did it in running processes."""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from attnfix.compat.arming import switches
from attnfix.compat.arming.activation import HEALTHY, LEFT_ALONE
from attnfix.compat.engines import ENGINES, Engine, installed_root, version_beside
from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge
from attnfix.compat.status import fix_state, messages, process_record
from attnfix.compat.status import unpatched_processes as processes
from attnfix.patches.catalogue import BY_ID, FIXES

from . import status_view
from .errors import CliError
from .output import console, print_json

NAME = "status"
HELP = (
    "Whether attnfix is active here, what it finds in the installed engines, and what it did in running processes. "
    "Exit code 3: a fix that is needed and on is missing."
)
EXAMPLE = "attnfix status --watch"
EXIT_MISSING = 3
_STANDS = (fix_state.INSTALLED, fix_state.EFFECTIVE)
_LEFT = (*fix_state.MISSING, fix_state.UNKNOWN_SOURCE, fix_state.OFF, fix_state.NOT_AFFECTED, fix_state.FIXED_UPSTREAM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    watch = "look again every SECONDS (default: 2), until Ctrl-C"
    parser.add_argument("--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help=watch)


def run(options: argparse.Namespace) -> int:
    if options.watch is not None:
        return _watch(options)
    found = collect()
    if options.json:
        print_json(found)
    else:
        out = console()
        out.print(status_view.view(found, out.width))
    return exit_code(found)


def _watch(options: argparse.Namespace) -> int:
    """Look again and again; the exit code is that of the last look."""
    from rich.live import Live

    if options.json or not options.watch >= 0.1:
        raise CliError("--watch takes 0.1 seconds or more, and no --json", 2)
    out, code = console(), 0
    try:
        with Live(console=out, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                found = collect()
                code = exit_code(found)
                shown = status_view.view(found, out.width)
                if out.is_terminal:
                    live.update(shown, refresh=True)
                else:  # in a pipe, `live` would show the last look alone
                    out.print(shown)
                time.sleep(options.watch)
    except KeyboardInterrupt:
        return code


def exit_code(found: dict[str, Any]) -> int:
    return EXIT_MISSING if found["missing"] else 0


def collect() -> dict[str, Any]:
    """Everything `attnfix status --json` prints."""
    import attnfix

    running = list(process_record.read_all())
    roots = {engine.name: root for engine in ENGINES.values() if (root := installed_root(engine))}
    here = socket.gethostname()
    recorded = [(process["pid"], process["started"]) for process in running if process["alive"] and process["host"] == here]
    unrecorded = list(processes.without_record(roots, recorded))
    engines = [{"engine": name, "release": version_beside(root), "location": str(root)} for name, root in roots.items()]
    found = {
        "attnfix": attnfix.__version__,
        "python": sys.executable,
        "active": hook_installed() and not switches.killed(),
        "reason": _inactive_reason(),
        "engines": engines,
        "fixes": [_expected(fix, ENGINES[fix.engine], roots.get(fix.engine)) for fix in FIXES],
        "records": str(process_record.folder()),
        "processes": running,
        "unrecorded": unrecorded,
        "warnings": [*filter(None, [process_record.refused()]), *disagreements(running), *switches.complaints(FIXES)],
    }
    return {**found, "missing": list(missing(found))}


def hook_installed() -> bool:
    """Whether the `.pth` file ran in this interpreter: the same Python, so the same folders, as the engine's."""
    return "attnfix.bootstrap.import_hook" in sys.modules


def _inactive_reason() -> str | None:
    if switches.killed():
        return "ATTNFIX=0"
    return None if hook_installed() else "attnfix.pth is not in a site folder that this Python processes at start"


def _expected(fix: Fix, engine: Engine, root: Any) -> dict[str, Any]:
    """What a process that loads the engine now would come to: `dormant` with the verdict, or why not."""
    state, reason, verdict = fix_state.DORMANT, f"{engine.name} is not installed here", None
    if root is not None:
        verdict = judge.judge(fix, root)
        if switches.killed():
            state, reason = fix_state.OFF, "ATTNFIX=0"
        elif switches.asked(fix) is False:
            state, reason = fix_state.OFF, f"{fix.switch}=0"
        elif switches.left_off(fix) and verdict.kind not in HEALTHY:
            state, reason = fix_state.OFF, f"off by default; {fix.switch}=1 turns it on"
        elif not engine.admits_us():
            state, reason = fix_state.OFF, f"{engine.allow_list} leaves attnfix out"
        elif verdict.affected:
            reason = f"affected ({verdict.reason}): installed as soon as {engine.name} loads"
        else:
            state, reason = LEFT_ALONE[verdict.kind], verdict.reason
    return {
        "fix": fix.id,
        "state": state,
        "reason": reason,
        "switch": fix.switch,
        "verdict": verdict.kind if verdict else None,
    }


# What is wrong


def missing(found: dict[str, Any]) -> Iterator[str]:
    """One sentence for each place where a fix that is needed and on does not stand."""
    if not found["active"] and found["reason"] != "ATTNFIX=0":
        for row in found["engines"]:
            yield f"NOT ACTIVE: {row['engine']} {row['release'] or ''} is installed, and {found['reason']}"
    for process in found["unrecorded"]:
        if process["state"] == processes.RESTART_NEEDED:
            yield f"restart needed: {process['engine']} {status_view.named(process)}: {process['reason']}"
    for process in found["processes"]:
        for row in process["fixes"] if process["alive"] else ():
            if row["state"] in fix_state.MISSING or _in_doubt(row, process["release"]):
                yield f"{row['fix']} is missing in {process['engine']} {status_view.named(process)}: {row['state']}"


def _in_doubt(row: dict[str, Any], version: str | None) -> bool:
    """Whether unknown code may well have the bug. Known code around a kernel that nobody can judge is not meant."""
    if row["state"] != fix_state.UNKNOWN_SOURCE or row.get("code") or row["fix"] not in BY_ID:
        return False
    doubtful: bool = messages.in_doubt(fix_state.FixState(BY_ID[row["fix"]]), version)
    return doubtful


def disagreements(processes: list[dict[str, Any]]) -> list[str]:
    """One sentence for each fix that stands in one running process of a release and, its code loaded, not in another.

    Not by the fix sets' names alone: a rank that has not loaded a module yet is healthy, and names another set.
    """
    seen: dict[tuple[str, ...], set[bool]] = defaultdict(set)
    versions: dict[str, set[str]] = defaultdict(set)
    for process in processes:
        if process["alive"]:
            engine = f"{process['engine']} {process['release'] or '(no version)'}"
            versions[engine].add(str(process.get("attnfix")))
            for row in process["fixes"]:
                if row["state"] in _STANDS or row["state"] in _LEFT:
                    seen[engine, row["fix"]].add(row["state"] in _STANDS)
    return [
        f"processes of {engine} disagree: {fix} stands in some and not in others"
        for (engine, fix), stands in sorted(seen.items())
        if len(stands) > 1
    ] + [
        f"processes of {engine} disagree: they run attnfix {' and '.join(sorted(names))}"
        for engine, names in versions.items()
        if len(names) > 1
    ]
