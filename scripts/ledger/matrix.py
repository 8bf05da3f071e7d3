#!/usr/bin/env python3
"""Runs every (fix, release) cell on the CPU, in fresh processes, and writes docs/evidence/matrix/matrix.json.

    python -m scripts.ledger.matrix
        all published releases: most of an hour on two cores
    python -m scripts.ledger.matrix --sample
        of each fix its newest release, an affected and a healthy one around changes of its verdict, and each edit on one of
        its releases, drawn: what CI runs, in forks of one warm Python (attnfix/prove/warm.py); writes nothing
    python -m scripts.ledger.matrix --merge --fix vllm.kv-scale-float
        the cells of a new fix, in such forks, put into the evidence beside those of others
    python -m scripts.ledger.matrix --engine vllm==0.19.1 --fix vllm.empty-context-chunks

Per release: the stock scenarios of all fixes after one import; a look at what stands in the engine with every fix switched
on; then, for each red cell, the fixed side with that fix alone. Faults that no release has are proven on edited copies. Red and
green come from these runs alone. Only then is the ledger asked: a cell on which the two disagree is an error. Finished releases
are kept under build/matrix; a run that was interrupted goes on where it stopped, unless the code has changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import secrets
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from packaging.version import Version

from attnfix.cli.releases import parse
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge, ledger, source_files
from attnfix.compat.releases import fetch
from attnfix.compat.status.fix_state import DORMANT
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.patches.lab.proof import Proof
from attnfix.prove import runner, warm
from attnfix.prove.verdict import PROVEN, Result, outcome

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "matrix"
EVIDENCE = ROOT / "docs" / "evidence" / "matrix" / "matrix.json"
_SEED = 20
ERROR = "error"
#: What an untouched engine must say of a fix
HEALTHY = {"not affected", "fixed upstream"}


@dataclass(frozen=True)
class Cell:
    """One fix on one release, as this run saw it. `observed`: red, green or absent. `evidence`: where and with what kernel it
    ran; `read` where the code path is not there."""

    fix: str
    release: str
    observed: str | None
    verdict: str
    reason: str
    evidence: str | None = None
    code: str | None = None
    stock_error: float | None = None
    fixed_error: float | None = None
    corrections: int | None = None
    measure: str | None = None
    edit: str | None = None


def cells(engine: str, release: str, fixes: list[Fix], seed: int | None = None) -> Iterator[Cell]:
    """Every cell of one release: all fixes that are for this engine. With `seed`, each edit on one of its releases alone."""
    site = fetch.fetch(engine, release, progress=False)
    with ThreadPoolExecutor(2) as both:
        stock, patched = both.map(
            lambda run: runner.run_sides(fixes, engine, _SEED, stock=run, site=site, run=run), (True, False)
        )
    for fix in fixes:
        seen, stands = stock.get(fix.id, stock), patched.get(fix.id, patched)
        observed, reason = outcome(seen)
        if observed == "red":
            fixed = runner.run_side(fix, _SEED, stock=False, site=site)
            yield _proven(fix, release, runner.conclude(fix, release, site / engine, (seen, fixed)))
        else:
            yield _left_alone(fix, release, observed, reason, seen, stands, site)
        proof = runner.proof_of(fix)
        for edit in edits_on(release, proof, seed):
            result = runner.prove(fix, release, site / engine, site=site, edit=edit, seed=_SEED)
            yield _proven(fix, release, result)


def edits_on(release: str, proof: type[Proof], seed: int | None = None) -> list[str]:
    """The edits that are made on this release: each on all of its releases, or with `seed` on one of them."""
    if seed is None:
        return [*proof.edits] if release in proof.edited else []
    return [edit for edit in proof.edits if random.Random(f"{seed} {edit}").choice(proof.edited) == release]


def _proven(fix: Fix, release: str, result: Result) -> Cell:
    """A red cell: what its own proof said, and whether the ledger knew."""
    verdict, reason = result.verdict, result.reason
    if result.edit is None and (known := ledger.load(fix).verdict(release)) != ledger.AFFECTED:
        verdict, reason = ERROR, f"the stock scenario is red, but the ledger says {known}"
    return Cell(
        fix=fix.id,
        release=release,
        observed="red",
        verdict=verdict if result.holds else ERROR,
        reason=reason,
        evidence=f"{result.device}, kernel {result.kernel}",
        code=result.code,
        stock_error=result.stock_error,
        fixed_error=result.fixed_error,
        corrections=result.corrections,
        measure=result.measure,
        edit=result.edit,
    )


def _left_alone(
    fix: Fix, release: str, observed: str | None, reason: str, seen: dict[str, Any], stands: dict[str, Any], site: Path
) -> Cell:
    """A cell that is not red: nothing may have been touched, and the ledger must call it healthy."""
    known, state = ledger.load(fix).verdict(release), stands.get("state") or {}
    # Where a release has none of its target modules, a fix stays what it was before
    waits = state.get("state") == DORMANT and not any(source_files.path_of(site / fix.engine, m) for m in fix.target_modules)
    complaints = [
        (observed is None, reason),
        ("error" in stands, f"with every fix on: {stands.get('error')}"),
        (not stands.get("untouched"), "a function of a healthy release was touched"),
        (state.get("state") not in HEALTHY and not waits, f"the fix is {state.get('state')}: {state.get('reason')}"),
        (known not in HEALTHY, f"the stock scenario is {observed}, but the ledger says {known}"),
    ]
    wrong = next((complaint for found, complaint in complaints if found), None)
    return Cell(
        fix=fix.id,
        release=release,
        observed=observed,
        verdict=ERROR if wrong else known,
        reason=wrong or reason or str(state.get("reason")),
        evidence=f"cpu, kernel {seen['kernel']}" if observed == "green" else "read" if observed else None,
        code=judge.judge(fix, site / fix.engine).code,
        stock_error=seen.get("main", {}).get("error"),
        measure=seen.get("measure"),
    )


def boundaries(fix: Fix) -> set[str]:
    """Releases around every change of the fix's verdict, the newest, and those that its faults are put into."""
    judged = list(ledger.load(fix).releases())
    chosen = {judged[-1][0], *runner.proof_of(fix).edited}
    for (before, was), (after, becomes) in pairwise(judged):
        if was != becomes:
            chosen |= {before, after}
    return chosen


def sample(fix: Fix, seed: int) -> set[str]:
    """Of `boundaries`: the newest release, one that is affected, one that is not, and those that edits are made on, as `seed`
    draws them."""
    verdicts, proof = dict(ledger.load(fix).releases()), runner.proof_of(fix)
    draw, newest = random.Random(f"{seed} {fix.id}"), [*verdicts][-1]
    around = sorted(boundaries(fix) - {newest})
    kinds = [[release for release in around if (verdicts.get(release) == ledger.AFFECTED) is red] for red in (True, False)]
    edited = {release for release in proof.edited if edits_on(release, proof, seed)}
    return {newest, *edited, *(draw.choice(releases) for releases in kinds if releases)}


def wanted(options: argparse.Namespace) -> list[tuple[str, str, list[Fix]]]:
    """(engine, release, fixes) of the run, in release order."""
    fixes = [BY_ID[name] for name in options.fix] if options.fix else list(FIXES)
    if options.engine:
        named = [parse(name) for name in options.engine]
    else:
        named = [(engine, str(version)) for engine in ENGINES for version in fetch.published(engine)]
    jobs, drawn = [], {fix.id: sample(fix, options.seed) for fix in fixes} if options.sample else {}
    for engine, release in named:
        ours = [fix for fix in fixes if fix.engine == engine and runner.examined(fix, release)]  # others are not judged
        if options.sample:
            ours = [fix for fix in ours if release in drawn[fix.id]]
        if ours:
            jobs.append((engine, release, ours))
    return sorted(jobs, key=lambda job: (job[0], Version(job[1])))


@cache
def fingerprint(engine: str) -> str:
    """Of all code that has a say in a cell of this engine."""
    names = "attnfix/prove", "compat", "kernels", f"patches/{engine}", "patches/shared", "patches/lab"
    files = sorted(path for name in names for path in (ROOT / name).rglob("*.*") if path.suffix in (".py", ".json", ".cu"))
    own = [ROOT / "scripts/ledger/matrix.py", ROOT / "patches/catalogue.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in own + files)).hexdigest()


def run_release(job: tuple[str, str, list[Fix]], seed: int | None = None) -> list[Cell]:
    """The cells of one release: kept ones if they were made by this very code, else new ones. For `seed` see `edits_on`."""
    engine, release, fixes = job
    kept = KEPT / f"{engine}-{release}.json"
    names, mark = [fix.id for fix in fixes], f"{fingerprint(engine)} {seed}"
    if kept.is_file():
        data = json.loads(kept.read_text())
        if (data["mark"], data["fixes"]) == (mark, names):
            return [Cell(**cell) for cell in data["cells"]]
    try:
        found = list(cells(engine, release, fixes, seed))
    except fetch.ReleaseError as error:
        return [Cell(name, release, None, ERROR, str(error)) for name in names]
    if all(cell.verdict != ERROR for cell in found):
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"mark": mark, "fixes": names, "cells": [asdict(cell) for cell in found]}))
    return found


def run_all(jobs: list[tuple[str, str, list[Fix]]], seed: int | None = None) -> list[Cell]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    found: list[Cell] = []
    with Progress(*columns, console=Console(stderr=True)) as progress, ThreadPoolExecutor(2) as pool:
        task = progress.add_task("releases", total=len(jobs))
        for job, result in zip(jobs, pool.map(partial(run_release, seed=seed), jobs)):
            found += result
            progress.advance(task)
            proven = sum(cell.verdict == PROVEN for cell in result)
            wrong = [cell for cell in result if cell.verdict == ERROR]
            progress.console.print(f"{job[0]} {job[1]}: {len(result)} cells, {proven} proven, {len(wrong)} in error")
            for cell in wrong:
                progress.console.print(f"  {cell.fix}{f' ({cell.edit})' if cell.edit else ''}: {cell.reason}", markup=False)
    return found


def merged(found: list[Cell]) -> list[Cell]:
    """The committed cells, with those of these cells' fixes replaced, in the order of a whole run."""
    replaced, order = {cell.fix for cell in found}, [fix.id for fix in FIXES]
    others = [Cell(**cell) for cell in json.loads(EVIDENCE.read_text())["cells"] if cell["fix"] not in replaced]

    def place(cell: Cell) -> tuple[str, Version, int, bool]:
        engine = cell.fix.partition(".")[0]
        return engine, Version(cell.release), order.index(cell.fix), cell.edit is not None

    return sorted([*others, *found], key=place)


def write(found: list[Cell]) -> None:
    from importlib.metadata import version

    import attnfix

    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "torch": version("torch")}
    data = {"attnfix": attnfix.__version__, "machine": machine, "cells": [asdict(cell) for cell in found]}
    EVIDENCE.parent.mkdir(parents=True, exist_ok=True)
    EVIDENCE.write_text(json.dumps(data, indent=1) + "\n")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sample", action="store_true", help="only the newest release of each fix, and some drawn")
    arguments.add_argument("--merge", action="store_true", help="put the cells of the named fixes into the evidence")
    arguments.add_argument("--seed", type=int, help="what --sample draws (default: anew each time)")
    arguments.add_argument("--engine", action="append", metavar="ENGINE==RELEASE", help="only this release (repeatable)")
    arguments.add_argument("--fix", action="append", choices=sorted(BY_ID), help="only this fix (repeatable)")
    options = arguments.parse_args()
    if options.merge and (options.sample or options.engine or not options.fix):
        arguments.error("--merge takes whole fixes: name them by --fix, without --engine and --sample")
    if options.sample:
        options.seed = secrets.randbelow(2**31) if options.seed is None else options.seed
        jobs = wanted(options)
        drawn = {(fix, release) for _, release, fixes in jobs for fix in fixes}
        around = {(fix, release) for fix in {fix for fix, _ in drawn} for release in boundaries(fix)}
        left = len(around - drawn)
        print(
            f"drawn with --seed {options.seed}: {left} of {len(around)} cells around changes of verdicts are left out; "
            "make matrix has all",
            flush=True,
        )
        with warm.proofs():
            found = run_all(jobs, options.seed)
    elif options.merge:
        with warm.proofs():
            found = run_all(wanted(options))
    else:
        found = run_all(wanted(options))
    wrong = sum(cell.verdict == ERROR for cell in found)
    proven = sum(cell.verdict == PROVEN for cell in found)
    print(f"{len(found)} cells: {proven} proven, {len(found) - proven - wrong} healthy and untouched, {wrong} in error")
    if not wrong and (options.merge or not (options.sample or options.engine or options.fix)):
        write(merged(found) if options.merge else found)
        print(f"wrote {EVIDENCE.relative_to(ROOT)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
