#!/usr/bin/env python3
"""Stand-ins against the real kernels: replays recorded launches through both, on a machine that has the engine and its GPU.

    python -m tests.differential.stand_ins FILE                  every entry point; evidence into docs/evidence/differential
    python -m tests.differential.stand_ins FILE --entry NAME     this one alone, several times
    python -m tests.differential.stand_ins FILE --check          here, each stand-in in the place of its kernel: does it replay?

FILE comes from `python -m tests.differential --record FILE`. Needs torch and the engine, no network. Each entry point has
processes of its own: a launch that ends its process, or hangs, ends nothing else, and the next one goes on behind it. What
compiles, FlashInfer's wrappers, has a process for each kernel, beside those of what compiles nothing: neither waits for the
other. What has the fewest launches comes first: it takes seconds. `--seconds` for each process's launches and `--minutes` for
all bound the time. The file of evidence is whole at any time: a run that is killed leaves what was done, and what the file has
of other entry points stays. Exits 1 where a kernel and its stand-in differ, where the kernel refuses what the stand-in takes,
or where nothing was compared.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .launches import read

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "docs" / "evidence" / "differential" / "stand-ins"
#: What may come out of a launch. "absent": the kernel is not there; it and "not run" say nothing. "undefined": the stand-in
#: leaves every number of the result undefined
OUTCOMES = ("agrees", "differs", "refused", "both refuse", "undefined", "died", "hung", "absent", "not run")
#: Outcomes that count as a difference
FAILING = ("differs", "refused", "died", "hung")
_AT_ONCE = 3
_COMPILING = 4  # they share the cores that are left beside `_AT_ONCE`; a compiler takes most of the time
_START_S = 150  # until a worker has imported torch and the engine


def main() -> int:
    options = _parser().parse_args()
    if options.worker:
        from . import stand_ins_worker

        numbers = [int(one) for one in options.launches.split(",")]
        stand_ins_worker.main(options.file, options.worker, numbers, options.device, options.check)
        return 0
    began = time.monotonic()
    about, launches = read(options.file)
    by_entry: dict[str, list[int]] = {}
    for number, launch in enumerate(launches):
        by_entry.setdefault(launch["entry"], []).append(number)
    asked = {name: numbers for name, numbers in by_entry.items() if name in (options.entry or by_entry)}
    out = options.out or EVIDENCE / f"{about['engine']}-{about['release']}.json"
    evidence: dict[str, Any] = {"about": about, "machine": {}, "entry_points": {}}
    if out.exists() and (former := json.loads(out.read_text()))["about"] == about:
        evidence = former  # of the same launches: what is asked for now takes the place of what was there
    written = _Written(out, evidence, launches, asked, options.check)
    until = began + 60 * options.minutes

    def one(part: tuple[str, list[int]]) -> None:
        name, numbers = part
        until_then = min(time.monotonic() + options.seconds, until)
        outcomes, machine = _entry(options, name, numbers, until_then, lambda now: written.note(name, now))
        written.end(name, outcomes, machine)

    parts = _parts(asked, launches)
    both = [[part for part in parts if bool(launches[part[1][0]]["new"]) == compiles] for compiles in (True, False)]
    pools = [ThreadPoolExecutor(1 if options.check else count) for count in (_COMPILING, _AT_ONCE)]
    for running in [pool.map(one, mine) for pool, mine in zip(pools, both)]:
        list(running)
    found = [evidence["entry_points"][name] for name in asked]
    for problem in [problem for entry in found for problem in entry["problems"]][:40]:
        print(f"{problem['outcome']}: {problem['entry']} {problem['launch']}: {problem['why']}")
    if not any(entry["agrees"] for entry in found):
        print("nothing was compared")
        return 1
    return 1 if any(entry[outcome] for entry in found for outcome in FAILING) else 0


class _Written:
    """The file of evidence, whole after every launch."""

    def __init__(self, out: Path, evidence: dict[str, Any], launches: list[dict[str, Any]], asked: dict[str, list[int]],
                 check: bool):  # fmt: skip
        self._out, self._evidence, self._launches, self._check = out, evidence, launches, check
        self._asked, self._began, self._lock = asked, time.monotonic(), threading.Lock()
        self._outcomes: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in asked}
        self._ended: dict[str, int] = dict.fromkeys(asked, 0)

    def note(self, name: str, outcomes: dict[int, dict[str, Any]]) -> None:
        """So far."""
        with self._lock:
            mine = self._outcomes[name]
            mine |= outcomes
            none = {"outcome": "not run", "why": "the run was ended"}
            self._evidence["entry_points"][name] = _counted(
                {number: mine.get(number, none) for number in self._asked[name]}, self._launches
            )
            self._evidence["seconds"] = round(time.monotonic() - self._began)
            _write(self._out, self._evidence, self._check)

    def end(self, name: str, outcomes: dict[int, dict[str, Any]], machine: dict[str, Any]) -> None:
        with self._lock:
            self._evidence["machine"] |= machine
        self.note(name, outcomes)
        if len(self._outcomes[name]) == len(self._asked[name]):
            print(line(name, self._evidence["entry_points"][name]), flush=True)


def _parts(asked: dict[str, list[int]], launches: list[dict[str, Any]]) -> list[tuple[str, list[int]]]:
    """What has processes of its own: an entry point, those with the fewest launches first, or the launches of one that take the
    same kernel where kernels are compiled. Entry points take turns, so that none waits for all of another's kernels; richest
    kernels first."""
    groups: dict[str, dict[str, list[int]]] = {}
    for name, numbers in asked.items():
        for number in numbers:
            groups.setdefault(name, {}).setdefault(_kernel(launches[number]), []).append(number)
    turns = [(turn, name, part) for name, of in groups.items()
             for turn, part in enumerate(sorted(of.values(), key=len, reverse=True))]  # fmt: skip
    return [(name, part) for turn, name, part in sorted(turns, key=lambda one: (one[0], len(asked[one[1]]), one[1]))]


def _kernel(launch: dict[str, Any]) -> str:
    """Which of the kernels that FlashInfer compiles: dtypes, widths, whether there are a window, a soft cap and a mask."""
    if not launch["new"]:
        return ""
    given = [*launch["call"]["args"], *launch["call"]["kwargs"].values()]
    given += [part for one in given if isinstance(one, dict) for part in one.get("tuple", ())]
    widths = [(one["tensor"], one["shape"][-1:]) for one in given if isinstance(one, dict) and "tensor" in one]
    planned = {name: value for plan in launch["plan"] for name, value in plan["kwargs"].items()}
    window, cap = planned.get("window_left"), planned.get("logits_soft_cap") or 0
    return json.dumps([widths, window is not None and window >= 0, cap > 0, planned.get("custom_mask") is not None])


def _entry(
    options: Any, name: str, numbers: list[int], until: float, note: Callable[[dict[int, dict[str, Any]]], None]
) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """What came out of each launch, by its number in the file; and what the worker says of the machine. note: of what came
    out so far."""
    outcomes: dict[int, dict[str, Any]] = {}
    machine: dict[str, Any] = {}
    left = list(numbers)
    while left:
        if time.monotonic() > until:
            outcomes |= {number: {"outcome": "not run", "why": "the time is up"} for number in left}
            break
        how, said = _worker(options, name, left, until, outcomes, machine, note)
        left = [number for number in left if number not in outcomes]
        if how is None:
            if left:  # it ended before it began with any of them
                outcomes |= {number: {"outcome": "absent", "why": said} for number in left}
            break
        if left and how:
            outcomes[left[0]] = {"outcome": how, "why": said}
            print(f"{name} {left[0]}: {how}", flush=True)
            left = left[1:]
    return outcomes, machine


def _worker(
    options: Any, name: str, left: list[int], until: float, outcomes: dict[int, dict[str, Any]], machine: dict[str, Any],
    note: Callable[[dict[int, dict[str, Any]]], None],
) -> tuple[str | None, str]:  # fmt: skip
    """(None, why): it ended by itself; ("died", "hung" or "not run", why): in the first launch of `left` that has no outcome;
    ("", …): the GPU's context was lost behind a launch that has one."""
    words = [sys.executable, "-m", "tests.differential.stand_ins", str(options.file.resolve()), "--worker", name]
    words += ["--launches", ",".join(map(str, left)), "--device", options.device, *(["--check"] if options.check else [])]
    # Seven processes with a thread for each core, and compilers with as many jobs, are several hundred at once
    cores = {"OMP_NUM_THREADS": "1", "MAX_JOBS": str(max(1, ((os.cpu_count() or 1) - _AT_ONCE) // _COMPILING))}
    process = subprocess.Popen(  # attnfix is the one that is installed: a path with ROOT on it would put its source before it
        words, env={**os.environ, **cores, "ATTNFIX": "0"}, cwd=ROOT, text=True, bufsize=1,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    errors: list[str] = []

    def listen() -> None:
        assert process.stdout
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def errors_of() -> None:
        assert process.stderr
        errors.extend(process.stderr)

    threads = [threading.Thread(target=work, daemon=True) for work in (listen, errors_of)]
    for thread in threads:
        thread.start()
    begun = False
    try:
        while True:
            if time.monotonic() >= until:
                return "not run", "the time is up"
            patience = min(options.launch_seconds if begun else _START_S, until - time.monotonic())
            try:
                line = lines.get(timeout=max(patience, 0.1))
            except queue.Empty:
                if time.monotonic() >= until:
                    return "not run", "the time is up"
                return "hung", f"no end within {round(patience)} s"
            if line is None:
                threads[1].join(5)
                why = "".join(errors)[-600:].strip()
                return ("died", why) if begun else (None, why or "the worker ended")
            try:
                said = json.loads(line)
                assert isinstance(said, dict)
            except (ValueError, AssertionError):
                continue  # what the engine prints
            if "machine" in said:
                machine |= said["machine"]
            elif "begun" in said:
                begun = True
            elif "outcome" in said:
                outcomes[said["launch"]], begun = said, False
                print(f"{name} {said['launch']}: {said['outcome']} {said.get('why', '')}"[:200], flush=True)
                note(outcomes)
                if said.get("lost"):
                    return "", ""
            elif "end" in said:
                return None, ""
    finally:
        process.kill()
        process.wait()


def _counted(outcomes: dict[int, dict[str, Any]], launches: list[dict[str, Any]]) -> dict[str, Any]:
    every = list(outcomes.values())
    worst = max((one for one in every if one.get("error") is not None), key=lambda one: one["error"] / one["of"], default=None)
    keep = ("outcome", "entry", "launch", "why", "error", "of")
    problems = [
        {name: value for name, value in {"entry": launches[number]["entry"], "launch": number, **one}.items() if name in keep}
        for number, one in sorted(outcomes.items())
        if one["outcome"] not in ("agrees", "both refuse", "undefined")
    ]
    counts = {outcome: sum(one["outcome"] == outcome for one in every) for outcome in OUTCOMES}
    figures = {"worst": worst["error"], "of": worst["of"], "in": worst["in"]} if worst else {"worst": None}
    return {"launches": len(every), **counts, **figures, "problems": problems}


def line(name: str, found: dict[str, Any]) -> str:
    counts = ", ".join(f"{found[outcome]} {outcome}" for outcome in OUTCOMES if found[outcome])
    worst = "" if found["worst"] is None else f"; worst {found['worst']:.3g} of {found['of']:.3g} in {found['in']}"
    return f"== {name}: {found['launches']} launches: {counts}{worst}"


def _write(out: Path, evidence: dict[str, Any], check: bool) -> None:
    if check:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    part.write_text(json.dumps(evidence, indent=1) + "\n")
    part.replace(out)


def entry_points(about: dict[str, Any]) -> dict[str, Any]:
    return {entry.name: entry for entry in importlib.import_module(about["entry_points"]).ENTRY_POINTS}


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("file", type=Path)
    made.add_argument("--entry", action="append", metavar="NAME")
    made.add_argument("--seconds", type=float, default=500, help="for each process's launches")
    made.add_argument("--launch-seconds", type=float, default=300, help="for each launch: FlashInfer compiles")
    made.add_argument("--minutes", type=float, default=9, help="for all")
    made.add_argument("--out", type=Path, help="instead of docs/evidence/differential/stand-ins/ENGINE-RELEASE.json")
    made.add_argument("--check", action="store_true", help="no GPU: the stand-ins against themselves")
    made.add_argument("--device", default="cuda", help="where the kernels are")
    made.add_argument("--worker", help=argparse.SUPPRESS)
    made.add_argument("--launches", help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    sys.exit(main())
