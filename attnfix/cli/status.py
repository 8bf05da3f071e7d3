"""`attnfix status`: is attnfix active in this Python, what would it patch here, and what did it in running processes."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rich.console import RenderableType

from attnfix.compat.arming import switches
from attnfix.compat.arming.activation import HEALTHY, LEFT_ALONE
from attnfix.compat.engines import ENGINES, Engine, installed_root, version_beside
from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge
from attnfix.compat.status import fix_state, messages, process_record
from attnfix.compat.status import unpatched_processes as processes
from attnfix.patches.catalogue import BY_ID, FIXES

from . import fleet, fleet_view, status_view
from .errors import CliError
from .output import console, few, print_json, print_line, reader_gone

NAME = "status"
BRIEF = "what is patched here, in which process, and did it fire?"
HELP = (
    "Whether attnfix is active here, what it finds in the installed engines, and what it did in running processes. "
    "Exit code 3: a fix that is needed and on is missing."
)
EXAMPLE = "attnfix status --watch"
EXIT_MISSING = 3
_TOLD = 5  # sentences in one line
_STANDS = (fix_state.INSTALLED, fix_state.EFFECTIVE)
_LEFT = (
    *fix_state.MISSING,
    fix_state.UNKNOWN_SOURCE,
    fix_state.OFF,
    fix_state.OBSERVED,
    fix_state.NOT_AFFECTED,
    fix_state.FIXED_UPSTREAM,
)
OBSERVING = "observing: nothing is corrected"


#: Looks and gives what was found; shows it in so many columns; its exit code
Look = Callable[[], dict[str, Any]]
Show = Callable[[dict[str, Any], int], RenderableType]
Judge = Callable[[dict[str, Any]], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    watch = "look again every SECONDS (default: 2), until Ctrl-C"
    pages = "many replicas by their metrics pages: addresses, or files with one on each line"
    parser.add_argument("--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help=watch)
    parser.add_argument("--metrics", nargs="+", metavar="URL", help=pages)
    parser.add_argument(
        "--ready", action="store_true", help="one line: is attnfix at work in a server here? For a startup probe"
    )


def run(options: argparse.Namespace) -> int:
    if options.ready:
        return _ready(options)
    look, show, judged = collect, status_view.view, exit_code
    if options.metrics:
        pages = fleet.addresses(options.metrics)
        if not pages:
            raise CliError("--metrics: the file names no page", 2)
        look, show, judged = partial(fleet.collect, pages), fleet_view.view, partial(fleet.exit_code, missing=EXIT_MISSING)
    if options.watch is not None:
        return _watch(options, look, show, judged)
    found = look()
    if options.json:
        print_json(found)
    else:
        out = console()
        out.print(show(found, out.width))
    return judged(found)


def _watch(options: argparse.Namespace, look: Look, show: Show, judged: Judge) -> int:
    """Look again and again; the exit code is that of the last look."""
    from rich.live import Live

    if options.json or not options.watch >= 0.1:
        raise CliError("--watch takes 0.1 seconds or more, and no --json", 2)
    out, code = console(), 0
    try:
        with Live(console=out, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                found = look()
                code = judged(found)
                shown = show(found, out.width)
                if out.is_terminal:
                    live.update(shown, refresh=True)
                else:  # in a pipe, `live` would show the last look alone
                    out.print(shown)
                if reader_gone():
                    return code
                time.sleep(options.watch)
    except KeyboardInterrupt:
        return code


def _ready(options: argparse.Namespace) -> int:
    if options.metrics or options.watch is not None:
        raise CliError("--ready asks once, and here alone: no --metrics, no --watch", 2)
    code, why = readiness(collect(expect=False))
    if options.json:
        print_json({"ready": not code, "reason": why})
    else:
        print_line(why)
    return code


def readiness(found: dict[str, Any]) -> tuple[int, str]:
    """Whether attnfix has done here all that it does before an engine serves, as exit code and one sentence.

    No state of a fix matters: a correction that fails while the engine serves would take all equal replicas out at once. Nor
    does a record that is missing: a full disk would stop every start.
    """
    if unreached := list(_unreached(found)):
        return EXIT_MISSING, "; ".join(few(unreached, _TOLD))
    running = [process for process in found["processes"] if process["alive"]]
    others = [process for process in found["unrecorded"] if process["state"] != processes.ELSEWHERE]
    if found["reason"] == "ATTNFIX=0":
        return 0, "ready: attnfix is off here, by ATTNFIX=0"
    if waiting := [process for process in others if process["state"] == processes.STARTING]:
        return 1, f"not ready: {waiting[0]['engine']} {status_view.named(waiting[0])} is starting"
    if not running and not others:
        elsewhere = [f"{each['engine']} {status_view.named(each)}: {each['reason']}" for each in found["unrecorded"]]
        told = [f"no engine is running here: {process_record.unseen()}", *few(elsewhere, _TOLD)]
        return 1, f"not ready: {'; '.join(told)}"
    states = Counter(process["state"] for process in others)
    observing = sum(map(observes, running))
    refused = sum(bool(fix_state.refusals(process["fixes"])) for process in running if not observes(process))
    at_work = len(running) - observing - refused + states[processes.ACTIVE]
    told = [f"attnfix is at work in {_counted(at_work)}"] if at_work else []
    told += [f"{_counted(observing)} {OBSERVING}"] if observing else []
    told += [f"attnfix is off in {_counted(states[processes.OFF])}, by ATTNFIX=0"] if states[processes.OFF] else []
    ready = "ready: " if told or refused else "ready, as far as can be told: "
    return 0, ready + "; ".join([*told, *few(found["missing"], _TOLD)])


def observes(process: dict[str, Any]) -> bool:
    """Whether a process with a record was started with ATTNFIX=observe."""
    return process.get("observes") is True


def _counted(number: int) -> str:
    return f"{number} process{'es' if number > 1 else ''}"


def exit_code(found: dict[str, Any]) -> int:
    return EXIT_MISSING if found["missing"] else 0


def collect(expect: bool = True) -> dict[str, Any]:
    """Everything `attnfix status --json` prints; without `expect`, not what a process that starts now would come to."""
    import attnfix

    running = list(process_record.read_all())
    roots = {engine.name: root for engine in ENGINES.values() if (root := installed_root(engine))}
    # Whatever host they name: a container of this machine has one of its own
    recorded = [(process["pid"], process["started"]) for process in running if process["alive"]]
    alone = not recorded
    mapped = list(processes.by_mapping(recorded, alone))
    running += mapped
    recorded += [(process["pid"], process["started"]) for process in mapped]
    unrecorded = list(processes.without_record(roots, recorded, alone))
    refusal = switches.refused(FIXES)
    engines = [{"engine": name, "release": version_beside(root), "location": str(root)} for name, root in roots.items()]
    found = {
        "attnfix": attnfix.__version__,
        "python": sys.executable,
        "active": hook_installed() and not switches.killed(),
        "observes": switches.observing(),
        "reason": _inactive_reason(),
        "engines": engines,
        "only": switches.only(),
        "fixset_on": switches.fixset_on(FIXES),
        "refused": str(refusal) if refusal else None,
        "fixes": [_expected(fix, ENGINES[fix.engine], roots.get(fix.engine), refusal) for fix in FIXES if expect],
        "records": str(process_record.folder()),
        "processes": running,
        "unrecorded": unrecorded,
        "warnings": [
            *filter(None, [process_record.refused()]),
            *unobserved(running),
            *disagreements(running),
            *removed(running),
            *switches.complaints(FIXES),
        ],
    }
    return {**found, "missing": list(missing(found))}


def hook_installed() -> bool:
    """Whether the `.pth` file ran in this interpreter: the same Python, so the same folders, as the engine's."""
    return "attnfix.bootstrap.import_hook" in sys.modules


def _inactive_reason() -> str | None:
    if switches.killed():
        return "ATTNFIX=0"
    return None if hook_installed() else "attnfix.pth is not in a site folder that this Python processes at start"


def _expected(fix: Fix, engine: Engine, root: Any, refusal: switches.Refusal | None) -> dict[str, Any]:
    """What a process that loads the engine now would come to: `dormant` with the verdict, or why not."""
    state, reason, verdict = fix_state.DORMANT, f"{engine.name} is not installed here", None
    if root is not None:
        verdict = judge.judge(fix, root)
        if switches.killed():
            state, reason = fix_state.OFF, "ATTNFIX=0"
        elif switches.asked(fix) is False:
            state, reason = fix_state.OFF, f"{fix.switch}=0"
        elif verdict.kind not in HEALTHY and (why := refusal.reason if refusal else switches.left_off(fix)):
            state, reason = fix_state.OFF, why
        elif not engine.admits_us():
            state, reason = fix_state.OFF, f"{engine.allow_list} leaves attnfix out"
        elif verdict.affected and switches.observing() and fix.unobservable:
            state, reason = fix_state.OFF, f"ATTNFIX=observe, and it is not observable: {fix.unobservable}"
        elif verdict.affected:
            how = "observed" if switches.observing() else "installed"
            reason = f"affected ({verdict.reason}): {how} as soon as {engine.name} loads"
        else:
            state, reason = LEFT_ALONE[verdict.kind], verdict.reason
    return {
        "fix": fix.id,
        "state": state,
        "reason": reason,
        "switch": fix.switch,
        "observable": fix.unobservable is None,
        "verdict": verdict.kind if verdict else None,
    }


# What is wrong


def missing(found: dict[str, Any]) -> Iterator[str]:
    """One sentence for each place where a fix that is needed and on does not stand, or where nothing tells that it does."""
    yield from _unreached(found)
    if found["refused"] and found["reason"] != "ATTNFIX=0":
        yield found["refused"]
    for process in found["unrecorded"]:
        if process["state"] == processes.NO_RECORD:
            yield f"no record of {process['engine']} {status_view.named(process)}: {process['reason']}"
    for process in found["processes"]:
        for reason in fix_state.refusals(process["fixes"]) if process["alive"] else ():
            yield f"nothing is armed in {process['engine']} {status_view.named(process)}: {reason}"
        for row in process["fixes"] if process["alive"] and not observes(process) else ():
            if row["state"] in fix_state.MISSING or _in_doubt(row, process["release"]):
                yield f"{row['fix']} is missing in {process['engine']} {status_view.named(process)}: {row['state']}"


def _unreached(found: dict[str, Any]) -> Iterator[str]:
    """One sentence for each engine, and each process of one, in which attnfix is not at work."""
    if not found["active"] and found["reason"] != "ATTNFIX=0":
        for row in found["engines"]:
            yield f"NOT ACTIVE: {row['engine']} {row['release'] or ''} is installed, and {found['reason']}"
    for process in found["unrecorded"]:
        if process["state"] == processes.RESTART_NEEDED:
            yield f"restart needed: {process['engine']} {status_view.named(process)}: {process['reason']}"


def _in_doubt(row: dict[str, Any], version: str | None) -> bool:
    """Whether unknown code may well have the bug. Known code around a kernel that nobody can judge is not meant."""
    if row["state"] != fix_state.UNKNOWN_SOURCE or row.get("code") or row["fix"] not in BY_ID:
        return False
    doubtful: bool = messages.in_doubt(fix_state.FixState(BY_ID[row["fix"]]), version)
    return doubtful


def unobserved(running: list[dict[str, Any]]) -> list[str]:
    """One sentence for each fix that a process does not observe, as something went wrong."""
    return [
        f"{row['fix']} is not observed in {process['engine']} {status_view.named(process)}: {row['state']}"
        for process in running
        if process["alive"] and observes(process)
        for row in process["fixes"]
        if row["state"] in fix_state.MISSING
    ]


def removed(running: list[dict[str, Any]]) -> list[str]:
    """One sentence for each process whose record somebody has removed: only what it holds open still tells of it."""
    told = "the metrics page and other containers do not show it until it is restarted"
    gone = [process for process in running if process.get("removed")]
    return [f"the record of {process['engine']} {status_view.named(process)} was removed: {told}" for process in gone]


def disagreements(processes: list[dict[str, Any]]) -> list[str]:
    """One sentence for each fix that stands in one running process of a release and, its code loaded, not in another.

    Not by the fix sets' names alone: a rank that has not loaded a module yet is healthy, and names another set.
    """
    seen: dict[tuple[str, ...], list[bool]] = defaultdict(list)
    versions: dict[str, set[str]] = defaultdict(set)
    for process in processes:
        if process["alive"]:
            engine = f"{process['engine']} {process['release'] or '(no version)'}"
            versions[engine].add(str(process.get("attnfix")))
            for row in process["fixes"]:
                if row["state"] in _STANDS or row["state"] in _LEFT:
                    seen[engine, row["fix"]].append(row["state"] in _STANDS)
    return [
        f"processes of {engine} disagree: {fix} is installed in {sum(stands)} of {len(stands)}"
        for (engine, fix), stands in sorted(seen.items())
        if 0 < sum(stands) < len(stands)
    ] + [
        f"processes of {engine} disagree: they run attnfix {' and '.join(sorted(names))}"
        for engine, names in versions.items()
        if len(names) > 1
    ]
