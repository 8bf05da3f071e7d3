"""What `attnfix status` shows: a table of running processes for each engine release, the reasons, and what is wrong, loud."""

from __future__ import annotations

import os
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from attnfix.compat.arming import switches
from attnfix.compat.status import fix_state
from attnfix.compat.status.unpatched_processes import ELSEWHERE, RESTART_NEEDED
from attnfix.compat.untrusted import line

from .output import coloured, few, table

_FIX_WIDTH = 14  # of the longest state
_WIDTHS = {"process": 14, "pid": 8, "host": 12, "fixset": 8}
_COUNTED = {"calls": "calls", "corrections": "corrected", "rows": "rows"}
_LOOKED = {"calls": "looked at", "needed": "needed it"}
_OPS = 5  # of a process; we have two
_SHOWN, _ENDED_SHOWN = 256, 5  # processes that run, and that have ended
_LETTERS, _REASONS = 1000, 200  # of a reason; of a release
_HEALTHY = (fix_state.NOT_AFFECTED, fix_state.FIXED_UPSTREAM)


def view(found: dict[str, Any], width: int) -> Group:
    """All of `found` (what `status.collect` returns), in `width` columns."""
    parts: list[RenderableType] = [*_head(found)]
    shown = _shown(found["processes"])
    for _, group in groupby(sorted(shown, key=_engine), key=_engine):
        parts += _release([*group], width)
    if more := len(found["processes"]) - len(shown):
        ended = len(shown) <= _SHOWN  # all that run are shown
        parts.append(Text(f"and {more} more{' that have ended' if ended else ''}", "dim"))
    if not found["processes"]:
        parts.append(Text(_no_record(found["records"])))
    running = any(process["alive"] for process in found["processes"])
    if not running:
        parts += _expected(found)
    untold = (RESTART_NEEDED, ELSEWHERE) if running else (RESTART_NEEDED,)  # told below; of another deployment
    unrecorded = [
        f"{process['engine']} {named(process)} has no record here: {process['state']}, {process['reason']}"
        for process in found["unrecorded"]
        if process["state"] not in untold
    ]
    parts += [Text(line(told), "yellow") for told in few(unrecorded)]
    parts += [Text(line(sentence[:_LETTERS]), "bold red") for told in ("missing", "warnings") for sentence in few(found[told])]
    if found["missing"]:
        parts.append(Text("Next: `attnfix report` collects what a bug report needs; `--json` has the whole record."))
    return Group(*parts)


def _no_record(folder: str) -> str:
    if os.path.lexists(folder):
        return f"No process has left a record in {folder}."
    return (
        f"No process has left a record: {folder} does not exist. A server makes it at its start; if one runs, "
        "set ATTNFIX_RUN_DIR as it has it."
    )


def _expected(found: dict[str, Any]) -> Iterator[RenderableType]:
    """The fixes of the engines that are installed here."""
    here = {row["engine"] for row in found["engines"]}
    rows = [row for row in found["fixes"] if row["fix"].partition(".")[0] in here]
    if rows:
        cells = ((row["fix"], coloured(row["state"]), row["reason"]) for row in rows)
        yield table("Fixes, as a process started now would have them", ("fix", "state", "reason"), cells)
    else:
        yield Text("No sglang or vLLM in this Python. Run attnfix in the engine's environment.")


def named(process: dict[str, Any]) -> str:
    """A process as sentences call it: role, rank, pid."""
    return f"{_role(process)} (pid {process['pid']})"


def _role(process: dict[str, Any]) -> str:
    return " ".join(filter(None, (process.get("role") or "process", process.get("rank"))))


def _engine(process: dict[str, Any]) -> str:
    return f"{process['engine']} {process['release'] or '(no version)'}"


def _head(found: dict[str, Any]) -> Iterator[Text]:
    if not found["engines"]:  # nothing that runs in this Python is patched
        yield Text(f"attnfix {found['attnfix']} in {found['python']}")
    elif found["active"] and found["refused"]:
        why = coloured(line(found["refused"][:_LETTERS]), "bold red")
        yield Text.assemble(f"attnfix {found['attnfix']} in {found['python']}: ", why)
    elif found["active"] and found["observes"]:
        yield Text(f"attnfix {found['attnfix']}: observing (ATTNFIX=observe), nothing is corrected, in {found['python']}")
    elif found["active"]:
        yield Text.assemble(f"attnfix {found['attnfix']}: ", coloured("active", "green"), f" in {found['python']}")
    else:
        yield Text.assemble(f"attnfix {found['attnfix']}: ", coloured("NOT ACTIVE", "bold red"), f" ({found['reason']})")
    if found["only"] is not None and not found["refused"]:
        named = f"nothing but {', '.join(found['only'])}" if found["only"] else "nothing"
        yield Text(line(f"ATTNFIX_ONLY: {named} is on"[:_LETTERS]))
    if switches.UNKNOWN_ID not in (found["refused"] or ""):  # a set with such an id has no name
        yield Text(f"Set of fixes that this environment asks for: {found['fixset_on']} (ATTNFIX_FIXSET pins it)")
    for row in found["engines"]:
        yield Text(f"{row['engine']} {row['release'] or '(no version)'} in {row['location']}")


def _shown(processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that run, then the last that have ended: a server that starts again and again must not fill the screen."""
    alive, ended = ([p for p in processes if bool(p["alive"]) is lives] for lives in (True, False))
    ended.sort(key=lambda p: p.get("activated") or 0, reverse=True)
    return alive[:_SHOWN] + ended[:_ENDED_SHOWN]


_OBSERVING = (
    "observing: nothing is corrected. Looked at: calls; needed it: calls in which the correction would have run. "
    "Calls inside replayed CUDA graphs are not seen."
)


# One release: its processes and their fixes


def _release(processes: list[dict[str, Any]], width: int) -> Iterator[RenderableType]:
    engaged, asleep = _relevant(processes)
    title = f"{_engine(processes[0])}: state of each fix, and how often it was called and corrected"
    for columns, chunk in _blocks(engaged, width):
        heads = (*columns, *("\n".join(_folded(fix)) for fix in chunk))
        rows = [tuple(_row(process, columns, chunk)) for process in processes]
        yield table(title, heads, rows)
        title = ""
    if any(process["alive"] and process.get("observes") is True for process in processes):
        yield Text(_OBSERVING)
    yield from _reasons(processes, [*engaged, *asleep])
    yield from _references(processes)


def _relevant(processes: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Fixes that are more than healthy in a running process, or in one that has ended where none runs: each gets a column. And
    those of which no process has loaded any code yet."""
    alive = [process for process in processes if process["alive"]] or processes
    seen: dict[str, set[str]] = defaultdict(set)
    for process in alive:
        for row in process["fixes"]:
            if row["fix"].startswith(process["engine"] + "."):
                seen[row["fix"]].add(row["state"])
    engaged = [fix for fix, found in seen.items() if found - {*_HEALTHY, fix_state.DORMANT}]
    return engaged, [fix for fix, found in seen.items() if found == {fix_state.DORMANT}]


def _blocks(fixes: list[str], width: int) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The table cut into pieces that fit: (columns that name the process, fixes)."""
    columns = tuple(_WIDTHS)
    while True:
        room = width - 2 - sum(_WIDTHS[name] + 1 for name in columns)
        fit = max(1, room // (_FIX_WIDTH + 1))
        yield columns, fixes[:fit]
        fixes, columns = fixes[fit:], ("process", "pid")
        if not fixes:
            return


def _row(process: dict[str, Any], columns: Iterable[str], fixes: list[str]) -> Iterator[Text]:
    told = {
        "process": _role(process) + ("" if process["alive"] else "\n(ended)"),
        "pid": str(process["pid"]),
        "host": process["host"],
        "fixset": (process.get("fixset") or "-")[:8],
    }
    rows = {row["fix"]: row for row in process["fixes"]}
    style = "" if process["alive"] else "dim"
    yield from (Text(told[name], style=style) for name in columns)
    for fix in fixes:
        yield _cell(rows[fix], style) if fix in rows else Text("-")


def _cell(row: dict[str, Any], style: str) -> Text:
    counted = [f"{short(row['counters'][name])} {word}" for name, word in _COUNTED.items() if row["counters"][name]]
    if row.get("observable") is False:
        counted = ["not observable"]
    elif looked := row.get("observed"):
        counted = [f"{short(looked[name])} {word}" for name, word in _LOOKED.items()]
    return Text.assemble(coloured(row["state"], style or None), ("".join(f"\n{each}" for each in counted), style))


def short(number: int) -> str:
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size and number >= 10_000:
            return f"{number // size}{unit}"
    return str(number)


def _folded(fix: str) -> list[str]:
    return textwrap.wrap(fix.partition(".")[2], _FIX_WIDTH)


def _reasons(processes: list[dict[str, Any]], fixes: list[str]) -> Iterator[Table]:
    """Why a fix is not installed, each reason once, with the processes it holds for unless it holds for all that run."""
    alive = [process for process in processes if process["alive"]]
    why: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for process in alive:
        for row in process["fixes"]:
            if row["fix"] in fixes and row["state"] not in (fix_state.INSTALLED, fix_state.EFFECTIVE, fix_state.OBSERVED):
                why[row["state"], row["reason"]][row["fix"]].append(named(process))
    if why:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for (state, reason), where in [*why.items()][:_REASONS]:
            grid.add_row(
                coloured(state), Text(f"{reason[:_LETTERS]}: {'; '.join(few([*_places(where, len(alive))]))}"[: 4 * _LETTERS])
            )
        yield grid


def _places(where: dict[str, list[str]], of: int) -> Iterator[str]:
    """The fixes of one reason, those of the same processes together."""
    together: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for fix, processes in where.items():
        together[tuple(processes)].append(fix)
    for names, fixes in together.items():
        yield ", ".join(fixes) + ("" if len(names) == of else f" in {', '.join(names)}")


def _references(processes: list[dict[str, Any]]) -> Iterator[Text]:
    """Where our ops are served by the torch reference, which is slower than the compiled kernels, and why."""
    for process in processes:
        slow = {op: told for op, told in process.get("kernels", {}).items() if told["path"] == "reference"}
        for op, told in [*slow.items()][:_OPS] if process["alive"] else ():
            why = str(told.get("reason") or "CPU tensors")[:_LETTERS]
            yield Text(line(f"{named(process)}: torch reference serves {op} ({why})"), "yellow")
