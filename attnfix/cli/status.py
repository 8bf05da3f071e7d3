"""`attnfix status`: is attnfix active in this Python, what would it patch here, and what did it in running processes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.text import Text

from attnfix.compat import gate, records, states, switches
from attnfix.compat.activation import LEFT_ALONE
from attnfix.compat.engines import ENGINES, Engine, installed_root, version_beside
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import FIXES

from .output import coloured, print_json, print_line, print_table

NAME = "status"
HELP = "Whether attnfix is active here, what it finds in the installed engines, and what it did in running processes."
EXAMPLE = "attnfix status --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def collect() -> dict[str, Any]:
    """Everything `attnfix status --json` prints."""
    import attnfix

    processes = list(records.read_all())
    roots = {engine.name: root for engine in ENGINES.values() if (root := installed_root(engine))}
    return {
        "attnfix": attnfix.__version__,
        "active": door_open() and not switches.killed(),
        "reason": _inactive_reason(),
        "engines": [
            {"engine": name, "release": version_beside(root), "location": str(root)} for name, root in roots.items()
        ],
        "fixes": [_expected(fix, ENGINES[fix.engine], roots.get(fix.engine)) for fix in FIXES],
        "processes": processes,
        "warnings": disagreements(processes) + switches.complaints(FIXES),
    }


def door_open() -> bool:
    """Whether the `.pth` file ran in this interpreter: the same Python, so the same folders, as the engine's."""
    return "attnfix._autoload" in sys.modules


def _inactive_reason() -> str | None:
    if switches.killed():
        return "ATTNFIX=0"
    return None if door_open() else "attnfix.pth is not in a site folder that this Python processes at start"


def _expected(fix: Fix, engine: Engine, root: Any) -> dict[str, Any]:
    """What a process that loads the engine now would come to: `dormant` with the verdict, or why not."""
    state, reason, verdict = states.DORMANT, f"{engine.name} is not installed here", None
    if root is not None:
        verdict = gate.judge(fix, root)
        asked = switches.asked(fix)
        if switches.killed():
            state, reason = states.OFF, "ATTNFIX=0"
        elif asked is False or (asked is None and not fix.default):
            state, reason = states.OFF, f"{fix.switch}=0" if asked is False else "off by default"
        elif not engine.admits_us():
            state, reason = states.OFF, f"{engine.allow_list} leaves attnfix out"
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


def disagreements(processes: list[dict[str, Any]]) -> list[str]:
    """One sentence for each fix that stands in one running process of an engine and is wanted but missing in another."""
    stands, missing = set(), set()
    for process in filter(lambda process: process["alive"], processes):
        for row in process["fixes"]:
            key = (process["host"], process["engine"], process["release"], row["fix"])
            if row["state"] in (states.INSTALLED, states.EFFECTIVE):
                stands.add(key)
            elif row["state"] in (*states.MISSING, states.UNKNOWN_SOURCE, states.OFF):
                missing.add(key)
    return [
        f"processes of {engine} {release} on {host} disagree: {fix} stands in some and not in others"
        for host, engine, release, fix in sorted(stands & missing, key=str)
    ]


def run(options: argparse.Namespace) -> int:
    found = collect()
    if options.json:
        print_json(found)
        return 0
    if found["active"]:
        print_line(f"attnfix {found['attnfix']}:", coloured("active", "green"), f"in {sys.executable}")
    else:
        print_line(f"attnfix {found['attnfix']}:", coloured("NOT ACTIVE", "bold red"), f"({found['reason']})")
    for row in found["engines"]:
        print_line(f"{row['engine']} {row['release'] or '(no version)'} in {row['location']}")
    print_table(
        "Fixes, as a process started now would have them",
        ("fix", "state", "reason"),
        ((row["fix"], coloured(row["state"]), row["reason"]) for row in found["fixes"]),
    )
    _print_processes(found["processes"])
    for sentence in found["warnings"]:
        print_line(coloured(sentence, "bold red"))
    return 0


def _print_processes(processes: list[dict[str, Any]]) -> None:
    if not processes:
        print_line(f"No process has left a record in {records.folder()}")
        return
    print_table(
        "Processes",
        ("pid", "engine", "fix", "state", "calls", "corrections", "kernel", "reason"),
        (
            (
                f"{process['pid']}" + ("" if process["alive"] else " (ended)"),
                f"{process['engine']} {process['release'] or ''}",
                row["fix"],
                coloured(row["state"]),
                str(row["counters"]["calls"]),
                str(row["counters"]["corrections"]),
                _kernel(process),
                row["reason"],
            )
            for process in processes
            for row in process["fixes"]
            if row["fix"].startswith(process["engine"] + ".")
        ),
    )


def _kernel(process: dict[str, Any]) -> Text:
    """Which path serves our ops there: the compiled kernels, or the torch reference and why."""
    used = {op["path"]: op.get("reason") for op in process.get("kernels", {}).values() if op["path"] != "unused"}
    if "reference" in used:
        return coloured(f"torch reference ({used['reference'] or 'CPU tensors'})", "yellow")
    return coloured("cuda", "green") if used else Text("-")
