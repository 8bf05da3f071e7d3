"""What attnfix costs: interpreter start, the import of an engine, a call that needs no correction.

Machines are loaded: figures are medians with a 95 % confidence interval. Interpreter starts, imports of an engine's package and
calls: of pairs, stock and patched, that ran one after the other. Imports of a target module take seconds and vary by more than
attnfix takes in all: there its own CPU time is measured, in the hook. A core's speed changes by half from one moment to the
next, for minutes: calls are measured in process after process until each was measured while the core was about as fast as it
gets, and those pairs count.

Each figure stands beside its aim, and the row says which are above it. That is a figure, no failure: how fast this machine is
decides, too. What fails is a fix that was disarmed or not asked while it was measured, and memory that stays allocated.

    python -m tests.robustness.cost FIX …     the calls of these fixes alone; their rows are put beside the others
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.compat.fix import Fix
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID, FIXES
from scripts.ledger.ledgers import covering
from scripts.pages.robustness_table import EVIDENCE
from tests.robustness import Row, plain_environment
from tests.robustness.paired import Difference, Run, busy, difference, in_turns, middle, timed
from tests.support import environments

#: A row, and its costs by name
Measured = tuple[Row, dict[str, Difference]]
START_MS, IMPORT_MS = 1.0, 50.0
#: What a call that needs no correction may cost: above a bare `wrapt.FunctionWrapper`, in all where every fix looks first
#: whether it is needed, in all where one acts on every call
ABOVE_BARE_US, LOOKING_US, ACTING_US = 1.0, 2.0, 3.0
#: How many processes measure calls, at least and at most
_PROCESSES = range(3, 9)
#: How much slower than at its fastest a core may be, and of how many pairs a median is taken
ABOUT, ENOUGH = 1.15, 6
RELEASES = [("sglang", "0.5.10.post1"), ("vllm", "0.20.2"), ("sglang", "0.5.23"), ("vllm", "0.33.0")]
TARGET = {
    "sglang": "sglang.srt.layers.attention.trtllm_mla_backend",
    "vllm": "vllm.model_executor.layers.attention.mla_attention",
}
WRAPPED_CALLS, HOOK_CLOCK = (str(Path(__file__).with_name(name)) for name in ("wrapped_calls.py", "hook_clock.py"))


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        places = Places(Path(folder))
        releases = RELEASES[:2]
        found = [
            (_start(places, 40 if quick else 200, 15 if quick else 60, say), START_MS),
            (_imports(places, releases[:1] if quick else releases, 12 if quick else 480, say), IMPORT_MS),
            (_hook(places, releases[:1] if quick else RELEASES, 2 if quick else 8, say), IMPORT_MS),
        ]
        calls = [_calls(places, releases[1:] if quick else releases, FIXES, range(1, 2) if quick else _PROCESSES, say)]
        if not quick:
            here = dict(releases)
            calls += _calls_elsewhere(places, [fix for fix in FIXES if here[fix.engine] not in _affected(fix)], say)
    for (row, measured), aim in found:
        above = [f"{name or row.what} {cost.median:.1f} ms" for name, cost in measured.items() if cost.median > aim]
        row.figures["aim"] = f"at most +{aim:g} ms"
        row.figures["above it"] = ", ".join(above) or "none"
    return _with_load([row for (row, _), _ in found] + calls)


def _with_load(rows: list[Row]) -> list[Row]:
    for row in rows:
        if row.figures["above it"] != "none" and (others := busy()):
            row.not_run.append(f"on an idle machine: {others}")
    return rows


class Places:
    """Environments with attnfix, each beside one without its activation paths: equal but for `.pth` and entry points."""

    def __init__(self, folder: Path):
        self.folder, self.wheels = folder, environments.build_wheels(folder)

    def pair(self, engine: str | None = None, release: str = "") -> tuple[environments.Environment, environments.Environment]:
        """(stock, patched)"""
        made = []
        for side in ("stock", "patched"):
            environment = environments.Environment(self.folder / f"{side}-{engine}-{release}", engine)
            if not environment.folder.is_dir():
                environments.bare(environment.folder)
                environments.install(environment, *self.wheels)
                if engine:
                    environments.add_engine(environment, engine, release)
            if side == "stock":
                (environment.site / "attnfix.pth").unlink(missing_ok=True)
                for points in environment.site.glob("attnfix-*.dist-info/entry_points.txt"):
                    points.unlink()
            made.append(environment)
        return made[0], made[1]


def _start(places: Places, pairs: int, seconds: float, say: Callable[[str], None]) -> Measured:
    """`python -c pass`; what is imported by other `.pth` files of this machine is on both sides."""
    say("interpreter start")
    stock, patched = places.pair()
    sides = [_command(environment, "pass") for environment in (stock, patched)]
    return _compared("interpreter start without an engine", {"": in_turns(*sides, pairs, seconds)})


def _imports(places: Places, releases: list, seconds: float, say: Callable[[str], None]) -> Measured:
    found = {}
    for engine, release in releases:
        say(f"import of {engine} {release}")
        sides = [_command(environment, f"import {engine}") for environment in places.pair(engine, release)]
        found[f"{engine} {release}"] = in_turns(*sides, 200, seconds / len(releases))
    return _compared("import of an engine's package, whole processes", found)


def _hook(places: Places, releases: list, processes: int, say: Callable[[str], None]) -> Measured:
    """The first target module: its fixes are judged and armed, and whatever else the engine imports for it."""
    row, costs = Row("import of an engine's target module, attnfix's own CPU time", 0), {}
    for engine, release in releases:
        say(f"import of {TARGET[engine]}, {release}")
        _, patched = places.pair(engine, release)
        told = [patched.run(HOOK_CLOCK, engine, TARGET[engine]).stdout.splitlines()[-1] for _ in range(processes)]
        took = [json.loads(line) for line in told]
        cost = costs[f"{engine} {release}"] = middle([one["hook"] + one["names"] for one in took])
        row.tried += processes
        row.figures[f"{engine} {release}"] = f"{cost} ms, {took[0]['names']:.1f} of it to look at names that are no target's"
    return row, costs


def _command(environment: environments.Environment, code: str) -> Callable[[], Run]:
    variables = {**plain_environment(), **environments.CPU, "ATTNFIX_RUN_DIR": str(environment.folder / "run")}
    return lambda: timed([environment.python, "-c", code], env=variables, cwd=environment.folder)


def _compared(what: str, cases: dict[str, tuple[list[Run], list[Run]]]) -> Measured:
    row, costs = Row(what, 0), {}
    for name, (stock, ours) in cases.items():
        cpu = difference([one.cpu for one in ours], [one.cpu for one in stock])
        wall = difference([one.wall for one in ours], [one.wall for one in stock])
        row.tried += cpu.pairs
        row.figures[f"{name} CPU".strip()] = f"{cpu} ms"
        row.figures[f"{name} wall".strip()] = f"{wall} ms"
        costs[name] = cpu
    return row, costs


def _affected(fix: Fix) -> set[str]:
    return {release for release, verdict in ledger.load(fix).releases() if verdict == ledger.AFFECTED}


def _calls_elsewhere(places: Places, fixes: Iterable[Fix], say: Callable[[str], None]) -> list[Row]:
    """The calls of these fixes, in few releases that have the faults of all of them: a row for each release."""
    codes: Any = [(fix, SimpleNamespace(releases=_affected(fix))) for fix in fixes if _affected(fix)]
    found = []
    for (engine, release), needed in covering(codes).items():
        row = _calls(places, [(engine, release)], needed, _PROCESSES, say)
        row.what = f"the same in {engine} {release}"
        found.append(row)
    return found


def _calls(places: Places, releases: list, measured: Iterable[Fix], processes: range, say: Callable[[str], None]) -> Row:
    """Of the fixes `measured`, with every fix on, those that are off by default, too. processes: how many, at least
    and at most."""
    row = Row("a call of a wrapped method whose correction is not needed, all fixes of the target on", 0)
    row.not_run.append("on a GPU, where nothing may wait for it: tests/gpu/test_corrections.py does that")
    worst: dict[str, CallCost] = {}
    for engine, release in releases:
        say(f"calls in {engine} {release}")
        fixes = [fix for fix in FIXES if fix.engine == engine]
        _, patched = places.pair(engine, release)
        packages = json.dumps({fix.id: fix.package for fix in measured if fix.engine == engine})
        switches = {fix.switch: "1" for fix in fixes}
        calls: list[tuple[dict, ...]] = []  # each call's measurements, one of each process
        for number in range(1, processes[-1] + 1):
            told = _told(patched.run(WRAPPED_CALLS, engine, packages, **switches).stdout)
            calls = [(*before, now) for before, now in zip(calls, told, strict=True)] if calls else [(now,) for now in told]
            fast = _at_full_speed(calls)
            slow = sum(len(pairs) < ENOUGH for pairs in fast)
            if number >= processes[0] and not slow:
                break
        for call, blocks in zip(calls, fast):
            _one_call(row, worst, f"{engine} {release}", call, blocks)
        if slow:
            row.not_run.append(f"{slow} of {len(calls)} calls in {engine} {release} while the core was fast")
        asked = {fix for (first, *_) in calls for fix in first["fixes"]}
        affected = [fix.id for fix in measured if fix.engine == engine and release in _affected(fix)]
        if uncalled := [fix for fix in affected if fix not in asked]:
            row.not_run.append(f"in {engine} {release}, whose controls call no target: {', '.join(uncalled)}")
        if not calls:
            row.wrong.append(f"no target of {engine} {release} was called")
    row.figures |= {name: str(cost) for name, cost in worst.items()}
    row.figures["aim"] = (
        f"at most +{LOOKING_US:g} µs, {ABOVE_BARE_US:g} above a bare wrapper; +{ACTING_US:g} where a fix acts on every call"
    )
    row.figures["above it"] = (
        ", ".join(f"{name} {cost.total.median:.2f} µs" for name, cost in worst.items() if cost.above) or "none"
    )
    return row


def _told(output: str) -> list[dict]:
    return [json.loads(line.removeprefix("TARGET")) for line in output.splitlines() if line.startswith("TARGET")]


class CallCost(NamedTuple):
    """What the dearest call of one target costs: in all, and above a bare wrapper. looks: no fix of it acts on every call."""

    total: Difference
    above_bare: Difference
    looks: bool
    fixes: str

    @property
    def above(self) -> bool:
        """Whether it costs more than it may."""
        return (
            self.total.median > LOOKING_US or self.above_bare.median > ABOVE_BARE_US
            if self.looks
            else self.total.median > ACTING_US
        )

    def __str__(self) -> str:
        acting = "" if self.looks else "; acts on every call"
        return f"{self.total} µs, {self.above_bare.median:+.2f} above a bare wrapper ({self.fixes}{acting})"


def _at_full_speed(calls: list[tuple[dict, ...]]) -> list[list[tuple[float, float, float]]]:
    """Of each call what it took ours, stock and bare, where doing nothing took about as long as it does at the least."""
    least = min((nothing for call in calls for one in call for nothing in one["nothing"]), default=0.0)
    blocks = [[each for one in call for each in zip(one["ours"], one["stock"], one["bare"], one["nothing"])] for call in calls]
    return [[times for *times, nothing in call if nothing <= ABOUT * least] for call in blocks]  # type: ignore[misc]


def _one_call(row: Row, worst: dict[str, CallCost], engine: str, processes: tuple[dict, ...], blocks: list) -> None:
    """One call of a target in one control, in each process. Of all calls measured at full speed the dearest counts."""
    name = processes[0]["target"].rpartition(":")[2]
    for told in processes:
        row.tried += len(told["ours"])
        row.wrong += [f"{name}: disarmed while it was measured, {reason}" for reason in told["unarmed"]]
        row.wrong += [f"{name}: {fix} corrected, so this is no call that needs nothing" for fix in told["corrected"]]
        row.wrong += [f"{name}: {fix} was not asked" for fix in told["uncalled"]]
        if told["grown"] > 1:
            row.wrong.append(f"{name}: {told['grown']:.0f} bytes stay allocated per call")
    if len(blocks) < ENOUGH:
        return
    ours, stock, bare = (list(side) for side in zip(*blocks))
    fixes = ", ".join(fix.partition(".")[2] for fix in told["fixes"])
    cost = CallCost(difference(ours, stock), difference(ours, bare), told["looks"], fixes)
    key = f"{engine} {name}"
    if key not in worst or cost.total.median > worst[key].total.median:
        worst[key] = cost


def main(names: list[str]) -> int:
    """Of some fixes, whose rows replace those of the same name in the evidence."""
    path, fixes = EVIDENCE / "cost.json", [BY_ID[name] for name in names]
    with tempfile.TemporaryDirectory() as folder:
        rows = _with_load(_calls_elsewhere(Places(Path(folder)), fixes, print))
    wrong = [sentence for row in rows for sentence in row.wrong]
    print(*wrong, *(f"{row.what}: {row.figures}" for row in rows), sep="\n")
    data = json.loads(path.read_text())
    data["rows"] = list({row["what"]: row for row in [*data["rows"], *map(asdict, rows)]}.values())
    path.write_text(json.dumps(data, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
