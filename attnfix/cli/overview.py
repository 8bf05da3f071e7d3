"""`attnfix` without arguments: what it finds on this machine, and what to do next, in six lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from attnfix.compat.engines import ENGINES
from attnfix.compat.gate import ledger
from attnfix.compat.status import fix_state

from . import status
from .output import coloured, print_line

#: A command and what it is for
Step = tuple[str, str]
#: How each engine is started, in a command to type
_SERVE = {"sglang": "sglang serve …", "vllm": "vllm serve …"}


def run() -> int:
    found = status.collect()
    for line in here(found):
        print_line(line)
    steps = next_steps(found)
    width = max(len(command) for command, _ in steps)
    for place, (command, why) in enumerate(steps):
        print_line("next: " if not place else "      ", Text(f"{command:<{width}}", "bold"), f" {why}")
    print_line("all commands: attnfix --help")
    return 0


def here(found: dict[str, Any]) -> Iterator[Text]:
    """Whether attnfix is active, what it finds in each engine, what the running processes say."""
    if not found["engines"]:
        engines = " or ".join(engine.title for engine in ENGINES.values())
        yield Text(f"attnfix {found['attnfix']}: no {engines} in {found['python']}: no server is patched from here")
    else:
        word = coloured("active", "green") if found["active"] else coloured("NOT ACTIVE", "bold red")
        yield Text.assemble(f"attnfix {found['attnfix']}: ", word, f" in {found['python']}", _because(found))
        names = ((row["engine"], row["release"] or "(no version)") for row in found["engines"])
        told = (f"{engine} {release}: {_verdicts(found, engine)}" for engine, release in names)
        yield Text("; ".join(told))
    if found["engines"] or found["processes"]:
        yield _processes(found)


def _because(found: dict[str, Any]) -> str:
    return "" if found["active"] else f": {found['reason']}"


def _verdicts(found: dict[str, Any], engine: str) -> str:
    rows = [row for row in found["fixes"] if row["fix"].startswith(f"{engine}.")]
    needed = [row for row in rows if row["verdict"] == ledger.AFFECTED]
    off = [row for row in needed if row["state"] == fix_state.OFF]
    unknown = [row for row in rows if row["verdict"] == ledger.UNKNOWN]
    told = f"{len(needed)} of {len(rows)} fixes are for its code"
    told += f", {len(off)} of them off" if off else ""
    return told + (f"; {len(unknown)} find code that they do not know, and leave it alone" if unknown else "")


def _processes(found: dict[str, Any]) -> Text:
    if found["missing"]:
        more = f" (and {len(found['missing']) - 1} more)" if found["missing"][1:] else ""
        return Text(found["missing"][0] + more, "bold red")
    alive = [process for process in found["processes"] if process["alive"]]
    if not alive:
        return Text("no server is running here that has left a record")
    rows = [row for process in alive for row in process["fixes"]]
    standing = {row["fix"] for row in rows if row["state"] in (fix_state.INSTALLED, fix_state.EFFECTIVE)}
    if observing := sum(process.get("observes") is True for process in alive):
        return Text(f"running processes: {len(alive)}; {observing} of them observing: nothing is corrected (ATTNFIX=observe)")
    corrected = {row["fix"] for row in rows if row["counters"]["corrections"]}
    return Text(f"running processes: {len(alive)}; fixes installed: {len(standing)}, that corrected a call: {len(corrected)}")


def next_steps(found: dict[str, Any]) -> list[Step]:
    """What to type next, one or two commands."""
    engines = [engine["engine"] for engine in found["engines"]]
    running = any(process["alive"] for process in found["processes"])
    if not engines:
        return [
            ("pip install attnfix", "in the environment or image of the engine"),
            ("attnfix verdict ENGINE==RELEASE", "which bugs a published release has"),
        ]
    if not found["active"]:
        if found["reason"] == "ATTNFIX=0":
            return [("unset ATTNFIX", "and start the server again: ATTNFIX=0 turns everything off")]
        return [(f"attnfix run -- {_SERVE[engines[0]]}", "start the server with attnfix in every Python of it")]
    if found["missing"]:
        return [
            ("attnfix status", "which fix is missing, where and why; exit code 3"),
            ("attnfix report", "what a maintainer asks for"),
        ]
    if running:
        return [
            ("attnfix status --watch", "each fix in each process, and how often it corrected"),
            (f"attnfix forecast {engines[0]}", "what an upgrade changes"),
        ]
    return [
        (f"attnfix doctor MODEL_FOLDER -- {_SERVE[engines[0]]}", "which of these bugs the deployment would hit"),
        (_SERVE[engines[0]], "start it as always; `attnfix status` says what attnfix did in it"),
    ]
