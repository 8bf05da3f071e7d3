#!/usr/bin/env python3
"""Runs engines stock and patched over drawn configurations, and compares both with float64.

    python -m tests.differential                                  the newest release of each engine, until it is stopped
    python -m tests.differential --engine vllm==0.33.0 --minutes 10 --seed 7
    python -m tests.differential --replay CASE.json               one case: what each step gave, stock and patched
    python -m tests.differential --shrink build/differential/vllm-0.33.0.jsonl:17   the case of that index, made small: a file
    python -m tests.differential --record FILE --engine vllm==0.33.0   launches of the stand-ins, for a GPU (stand_ins)
    python -m tests.differential --recall FIX --engine vllm==0.29.0 --minutes 10   how soon its bug is seen
    python -m tests.differential --evidence                       what the files add up to, for docs/differential.md

Exits 1 where anything was harm or missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from packaging.version import Version
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from attnfix.cli.releases import parse

from . import judge, recall, record, run, shrink, space
from .launches import Kept
from .protocol import Answer, Case

RUNS = run.ROOT / "docs" / "evidence" / "differential" / "runs.json"
#: Counts of a row of RUNS
_ROW = (
    "engine", "release", "space", "seeds", "configurations", "long", "steps", "pairs", "harm", "missed", "find", "corrected",
    "refused", "ok", "band", "seconds",
)  # fmt: skip
NEWEST = ("vllm==0.33.0", "sglang==0.5.23")
_ENDLESS = 1 << 30
_OF_A_KIND = 3  # launches that are recorded


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    names = [name.split("==") for name in options.engine or NEWEST]
    if options.out and not options.shrink and not all(run.named(options.out) == name for name in names):
        parser.error(f"--out: the file's name begins with the engine and its release: {'-'.join(names[0])}-….jsonl")
    console = Console(stderr=True)
    if options.replay:
        return _replay(json.loads(options.replay.read_text()), options, console)
    if options.shrink:
        return _shrink(options.shrink, options, console)
    if options.evidence:
        return _evidence(console)
    axes = {name: json.loads(value) for name, _, value in (word.partition("=") for word in options.set)}
    if options.fix:
        axes |= space.tried_in(options.fix)
    if options.record:
        return _record(options, axes, console)
    if options.recall:
        return _recall(options, axes, console)
    failed, stopped, summaries = False, False, []
    more = {name: value for name in ("mutation", "sabotage") if (value := getattr(options, name))}
    for name in options.engine or NEWEST:
        engine, release = map(str, parse(name))
        columns = TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[said]}")
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=options.configurations, said="")
            seen: list[run.Record] = []

            def say(one: run.Record, progress: Any = progress, task: Any = task, seen: Any = seen) -> None:
                seen.append(one)
                counts = {kind: sum(other.verdict == kind for other in seen) for kind in judge.KINDS}
                progress.update(task, advance=1, said=", ".join(f"{count} {kind}" for kind, count in counts.items() if count))
                if one.verdict in (*judge.FAILING, judge.FIND):
                    progress.console.print(f"{one.verdict} at {one.index}: {one.why}", markup=False)

            try:
                run.run(
                    engine, release, seed=options.seed, most=options.configurations or _ENDLESS, say=say, axes=axes,
                    until=time.monotonic() + 60 * options.minutes if options.minutes else float("inf"), jobs=options.jobs,
                    all_fixes=options.all_fixes, off=options.off, path=options.out, branches=options.branches, **more,
                )  # fmt: skip
            except KeyboardInterrupt:
                stopped = True
        summaries.append(run.summary(options.out or run.file_of(engine, release)))
        failed |= any(summaries[-1][kind] for kind in judge.FAILING)
        if stopped:
            console.print("stopped; the same command goes on from here")
            break
    if options.json:
        print(json.dumps(summaries, indent=1))
    else:
        console.print(_table(summaries))
        for one in summaries:
            if "branches" in one:
                console.print(_branches(one))
    return 1 if failed else 0


def _table(summaries: list[dict[str, Any]]) -> Table:
    table = Table()
    columns = ("release", "configurations", "steps", *judge.KINDS, "band", "pairs")
    for column in columns:
        table.add_column(column, justify="left" if column == "release" else "right")
    for one in summaries:
        shown = {**one, "release": f"{one['engine']} {one['release']}", "pairs": "{} of {}".format(*one["pairs"])}
        table.add_row(*(str(shown[column]) for column in columns))
    return table


def _branches(one: dict[str, Any]) -> Table:
    found = one["branches"]
    table = Table(title=f"{one['engine']} {one['release']}: branches that {found['cases']} cases entered")
    for column in ("file", "entered", "branches", "functions never entered"):
        table.add_column(column, justify="left" if column in ("file", "functions never entered") else "right")
    for name, counts in found["files"].items():
        table.add_row(name, str(counts["entered"]), str(counts["branches"]), "\n".join(counts["never"]))
    return table


def _replay(case: Case, options: Any, console: Console) -> int:
    more = {name: value for name in ("mutation", "sabotage") if (value := getattr(options, name))}
    with run.Sides(case["engine"], case["release"], options.all_fixes, options.off) as sides:
        verdict, stock, patched = sides.judge(case, verbose=True, **more)
        for name, answer in (("stock", stock), ("patched", patched)):
            console.print(f"[bold]{name}[/bold]: {answer['ended']}, {answer['seconds']} s")
            _print(answer, console)
            if answer["ended"] not in ("done", "refused"):
                side = sides.stock if name == "stock" else sides.patched
                console.print(side.said(), markup=False)
        console.print(f"{verdict.kind}: {verdict.why}", markup=False)
    if options.json:
        print(json.dumps({"verdict": verdict._asdict(), "stock": stock, "patched": patched}, indent=1))
    return 1 if verdict.kind in judge.FAILING else 0


def _print(answer: Answer, console: Console) -> None:
    for number, step in enumerate(answer["steps"]):
        worst = max(step["outputs"], key=lambda out: out["error"], default=None)
        said = f"{worst['name']}: {worst['error']:.3g} of {worst['tolerance'][1]:.3g} at {worst['at']}" if worst else ""
        console.print(f"  {number:3} {'+'.join(step['kinds']):24} {said}", markup=False)
    for what in ("why", "error", "corrections"):
        if answer.get(what):
            console.print(f"  {what}: {answer[what]}", markup=False)  # type: ignore[literal-required]


def _shrink(where: str, options: Any, console: Console) -> int:
    path, _, index = where.rpartition(":")
    old = next(one for one in run.records(Path(path)) if one.index == int(index) and one.seed == options.seed and one.case)
    case = old.case
    assert case
    file = options.out or run.BUILD / "shrunk" / f"{case['engine']}-{case['release']}-{options.seed}-{index}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with run.Sides(case["engine"], case["release"], options.all_fixes, options.off) as sides:
        began = time.monotonic()

        def still(candidate: Case) -> bool:
            verdict, *_ = sides.judge(candidate)
            return (verdict.kind, verdict.sign) == (old.verdict, old.sign)

        def say(smaller: Case) -> None:
            file.write_text(json.dumps(smaller, indent=1) + "\n")
            console.print(f"{time.monotonic() - began:.0f} s: {len(smaller['requests'])} requests, {smaller['steps']} steps")

        if not still(space.whole(case)):
            console.print("the case does not go wrong in that way any more")
            return 1
        say(space.whole(case))
        budget = {"seconds": 60 * (options.minutes or 10), "evaluations": options.configurations or 400}
        shrinking = shrink.Shrinking(space.whole(case), still, say=say, **budget)
        shrinking.run()
    console.print(f"{shrinking.evaluations} evaluations: {file}", markup=False)
    return 0


def _recall(options: Any, axes: dict[str, Any], console: Console) -> int:
    """One run, of which each fix that is asked for gets an entry, and a fault that was put back one of its own."""
    engine, release = map(str, parse((options.engine or NEWEST)[0]))
    fault = options.sabotage
    folder = run.BUILD / "recall" / f"{options.seed}-{fault or 'fixes'}-{options.fix or 'drawn'}".replace(" ", "-")
    path = folder / f"{engine}-{release}.jsonl"
    more = {"sabotage": fault} if fault else {}
    run.run(
        engine, release, seed=options.seed, most=options.configurations or _ENDLESS, say=lambda one: console.print(one.verdict),
        until=time.monotonic() + 60 * (options.minutes or 10), axes=axes, jobs=options.jobs, all_fixes=True, path=path, **more,
    )  # fmt: skip
    every = [one for one in run.records(path) if one.seed == options.seed]
    how = "settings of the fix" if options.fix else f"set: {' '.join(options.set)}" if options.set else "drawn"
    with ExitStack() as stack:
        whole = None
        if fault:
            sides = stack.enter_context(run.Sides(engine, release, all_fixes=True))
            whole = lambda case: sides.judge(case)[0].kind  # noqa: E731
        for name in options.recall:
            found = recall.entry(release, options.seed, how, every, name, whole)
            group = (recall.FAULTS, fault.removeprefix("0.1.0: ")) if fault else (engine, name)
            recall.add(run.BUILD / "recall.json", *group, found)
            console.print(f"{group[1]}: {found}", markup=False)
    return 0


def _record(options: Any, axes: dict[str, Any], console: Console) -> int:
    engine, release = map(str, parse((options.engine or NEWEST)[0]))
    until = time.monotonic() + 60 * (options.minutes or 2)
    most = options.configurations or _ENDLESS

    def say(cases: int, kept: Kept) -> None:
        console.print(f"{cases} cases, {len(kept.by_key)} kinds of launches, {len(kept.launches())} kept")

    kept = record.record(
        engine, release, options.record, seed=options.seed, cases=most, until=until, most=_OF_A_KIND, say=say, axes=axes
    )
    for why, count in sorted(kept.skipped.items()):
        console.print(f"not kept: {why} ({count})", markup=False)
    return 0


def _evidence(console: Console) -> int:
    rows = json.loads(RUNS.read_text()) if RUNS.exists() else []
    summaries = [one for path in sorted(run.BUILD.glob("*.jsonl")) if (one := run.summary(path))["configurations"]]
    for one in summaries:
        if not put(rows, shortened(one)):
            console.print(
                f"{one['engine']} {one['release']}: some of its seeds are in evidence of other runs; left alone", markup=False
            )
    rows.sort(key=lambda row: (row["engine"], Version(row["release"]), min(row["seeds"])))
    RUNS.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")
    console.print(_table(summaries))
    return 0


def shortened(one: dict[str, Any]) -> dict[str, Any]:
    """A row of RUNS: counts, and the fixes that acted where stock was wrong."""
    return {name: one[name] for name in _ROW} | {"fixes": sorted(one["first_by_fix"])}


def put(rows: list[dict[str, Any]], one: dict[str, Any]) -> bool:
    """Put the summary of a file of results into the place of what it held before, or else beside the others.

    Runs of one release and space add up, so no seed may be in two of them: False where it would be.
    """
    for at, other in enumerate(rows):
        if all(other[key] == one[key] for key in ("engine", "release", "space")) and set(one["seeds"]) & set(other["seeds"]):
            if not set(other["seeds"]) <= set(one["seeds"]):
                return False
            rows[at] = one
            return True
    rows.append(one)
    return True


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--engine", action="append", metavar="NAME==RELEASE", help=f"several times; default: {', '.join(NEWEST)}")
    made.add_argument("--minutes", type=float, help="of each release")
    made.add_argument("--configurations", type=int, help="of each release and seed, those of earlier runs among them")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--set", action="append", default=[], metavar="AXIS=JSON", help="a setting that is the same in all")
    jobs = max(1, (os.cpu_count() or 1) // 2)
    made.add_argument("--jobs", type=int, default=jobs, help="cases at a time, of two processes each")
    made.add_argument("--branches", action="store_true", help="measure which branches cases enter, too; slower")
    made.add_argument("--fix", help="only settings that this fix must be tried in")
    made.add_argument("--all-fixes", action="store_true", help="those, too, that are off by default")
    made.add_argument("--off", action="append", default=[], metavar="FIX", help="a fix that is switched off")
    made.add_argument("--mutation", help="break this harness: see MUTATIONS of the engine's server")
    made.add_argument("--sabotage", help="break the corrections: see side.py")
    made.add_argument("--out", type=Path, help="file of results, instead of one under build/differential")
    made.add_argument("--json", action="store_true")
    made.add_argument("--replay", type=Path, metavar="FILE")
    made.add_argument("--shrink", metavar="FILE:INDEX")
    made.add_argument("--evidence", action="store_true")
    made.add_argument("--recall", action="append", metavar="FIX", help="in one release, ten minutes if nothing else is said")
    made.add_argument("--record", type=Path, metavar="FILE", help="of one release, for two minutes if nothing else is said")
    return made


if __name__ == "__main__":
    sys.exit(main())
