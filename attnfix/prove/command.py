"""The run of `attnfix prove`: red before, green after, on this machine."""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from attnfix.cli import releases
from attnfix.cli.errors import CliError
from attnfix.cli.listing import fix_named
from attnfix.cli.output import aside, coloured, complain, console, print_json, print_table
from attnfix.compat.engines import ENGINES, installed_root, version_beside
from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge, ledger, source_files
from attnfix.patches.catalogue import FIXES

from . import runner, warm
from .verdict import GREEN, NOT_JUDGED, PROVEN, RED, UNPROVEN, Answer, Result

#: fix, release, package folder, folder to put on the path, edit
Job = tuple[Fix, str, Path, Path | None, str | None]

#: So many proofs run in forks of one Python that has imported torch; fewer are done before it has
_MANY = 3
#: One in so many of them runs again, each side in a fresh interpreter
_AGAIN = 20
#: Proofs that run side by side, of two processes each: more need too much memory
_AT_ONCE = 4
#: In forks, so many stock sides share one import of the engine
_STOCK_SIDES = 6
_APART = "a fork of a warm Python and a fresh interpreter say otherwise; --cold runs all in fresh ones"


def run(options: argparse.Namespace) -> int:
    wanted = [fix_named(name) for name in options.fix] if options.fix else list(FIXES)
    if options.edit and (not options.engine or len(wanted) != 1):
        raise CliError("--edit needs --engine ENGINE==RELEASE and one --fix ID", 2)
    if options.gpu:
        _require_gpu(options)
    engines = list(_fetched(options.engine, wanted) if options.engine else _installed(wanted))
    edits = _edits(wanted[0], options.edit) if options.edit else (None,)
    jobs = [(fix, *engine[1:], edit) for engine in engines for fix in wanted if fix.engine == engine[0] for edit in edits]
    if not jobs:
        raise CliError("none of the named fixes is for the named engine", 2)
    results = [*_run(jobs, options)]
    if options.json:
        print_json({"results": [result.as_dict() for result in results]})
    else:
        _print(results)
    return 0 if all(result.holds for result in results) else 1


def _require_gpu(options: argparse.Namespace) -> None:
    if options.engine:
        raise CliError("--gpu is for engines installed here: a release fetched with --engine has no compiled part", 2)
    import torch

    if not torch.cuda.is_available():
        raise CliError("--gpu: torch sees no GPU here")


def _edits(fix: Fix, names: list[str]) -> list[str]:
    """The edits asked for, once it is clear that the fix's proof has them."""
    known = list(runner.proof_of(fix).edits)
    for name in names:
        if name not in known:
            raise CliError(f"{name!r} is no edit of {fix.id}; known: {', '.join(known) or 'none'}", 2)
    return names


def _fetched(names: list[str], wanted: list[Fix]) -> Iterator[tuple[str, str, Path, Path | None]]:
    """(engine, release, package folder, folder to put on the path) of each named release."""
    from attnfix.compat.releases import fetch

    pairs = [releases.parse(name) for name in names]
    for engine, _ in pairs:
        if not any(fix.engine == engine for fix in wanted):
            raise CliError(f"none of the named fixes is for {engine}", 2)
    for engine, release in pairs:
        try:
            site = fetch.fetch(engine, release)
        except fetch.ReleaseError as error:
            raise CliError(str(error)) from error
        yield engine, release, site / engine, site


def _installed(wanted: list[Fix]) -> Iterator[tuple[str, str, Path, Path | None]]:
    found = [(engine.name, root) for engine in ENGINES.values() if (root := installed_root(engine))]
    if not found:
        raise CliError("no engine is installed here; name a release, as in --engine sglang==0.5.10.post1")
    for name, root in found:
        if any(fix.engine == name for fix in wanted):
            yield name, version_beside(root) or "unknown", root, None


def _run(jobs: list[Job], options: argparse.Namespace) -> Iterator[Result]:
    """The results in the order of `jobs`. Of many, some run again in fresh interpreters, and must say the same."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    shown = not options.json and sys.stderr.isatty()
    with (
        Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True) as progress,
        _forks(wanted=len(jobs) >= _MANY and not (options.cold or options.gpu)) as forked,
        ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool,
        ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as beside,
    ):
        stock = _stock_sides(jobs, options.seed, beside) if forked else {}
        again = random.Random(options.seed).sample(jobs, -(-len(jobs) // _AGAIN)) if forked else []
        task = progress.add_task("stock and fixed", total=len(jobs))

        def one(job: Job) -> Result:
            seed, answers = stock.get(job, (options.seed, None))
            result = _prove(*job, seed, gpu=options.gpu, stock=answers)
            if job in again and result.seed is not None:
                cold = _prove(*job, result.seed, cold=True)
                result = result if cold.row == result.row else replace(cold, verdict=UNPROVEN, reason=_APART)
            return result

        for done, result in enumerate(pool.map(one, jobs), 1):
            progress.advance(task)
            if not shown and not options.json and len(jobs) >= _MANY:
                aside(f"{done} of {len(jobs)}: {result.fix}: {result.verdict}")
            yield result


@contextmanager
def _forks(wanted: bool) -> Iterator[bool]:
    """Whether sides run in forks of a warm Python within it. Where that cannot be forked, they start fresh interpreters."""
    with ExitStack() as stack:
        if wanted:
            try:
                stack.enter_context(warm.proofs())
            except RuntimeError as error:
                complain(f"{error}; each proof starts two fresh ones, which takes longer")
                wanted = False
        yield wanted


def _stock_sides(jobs: list[Job], seed: int | None, pool: Executor) -> dict[Job, tuple[int, Callable[[], Answer]]]:
    """The seed and the stock answer of each job, several after one import of the engine; without jobs that have nothing to
    run, and those of edited releases."""
    engines: dict[tuple[str, Path | None], list[Job]] = {}
    for fix, release, root, site, edit in jobs:
        if edit is None and _nothing_to_run(fix, release, root) is None:
            engines.setdefault((fix.engine, site), []).append((fix, release, root, site, edit))
    found: dict[Job, tuple[int, Callable[[], Answer]]] = {}
    for (engine, site), of_engine in engines.items():
        for start in range(0, len(of_engine), _STOCK_SIDES):
            some = of_engine[start : start + _STOCK_SIDES]
            drawn = secrets.randbelow(2**31) if seed is None else seed
            fixes = [job[0] for job in some]
            answers = pool.submit(runner.run_sides, fixes, engine, drawn, stock=True, site=site, run=True)
            found |= {job: (drawn, partial(_answer_of, job[0], answers)) for job in some}
    return found


def _answer_of(fix: Fix, answers: Future[Answer]) -> Answer:
    answer: Answer = answers.result().get(fix.id, answers.result())
    return answer


def _prove(fix: Fix, release: str, root: Path, site: Path | None, edit: str | None, seed: int | None, **how: Any) -> Result:
    nothing = _nothing_to_run(fix, release, root) if edit is None else None
    return nothing or runner.prove(fix, release, root, site=site, edit=edit, seed=seed, **how)


def _nothing_to_run(fix: Fix, release: str, root: Path) -> Result | None:
    """The result of a fix whose ledger does not judge this release, or whose modules this engine does not have."""
    if result := runner.not_judged(fix, release, root):
        return result
    if judge.judge(fix, root).kind != ledger.UNKNOWN or any(source_files.path_of(root, m) for m in fix.target_modules):
        return None
    reason = f"this {fix.engine} has none of the modules the fix is about"
    return Result(fix.id, fix.engine, release, UNPROVEN, reason)


def _print(results: list[Result]) -> None:
    out = console()
    out.print(Text("Errors: relative, against float64, or what is named below; control: a case that the bug leaves alone"))
    for place, (title, names, group) in enumerate(_tables(results)):
        if place and not out.is_terminal:
            out.print()
        edits = any(result.edit for result in group)
        print_table(
            title,
            (names, *(["edit"] if edits else []), "stock → fixed", "control", "verdict", "GPU kernels"),
            (
                (
                    result.fix if names == "fix" else result.release,
                    *([result.edit or "-"] if edits else []),
                    Text.assemble(_error(result, result.stock_error), " → ", _error(result, result.fixed_error)),
                    {True: Text("same"), False: coloured("changed", "red"), None: Text("-")}[result.control_identical],
                    coloured(result.verdict),
                    result.kernel,
                )
                for result in group
            ),
        )
    for measure, fixes in _measures(results).items():
        out.print(Text(f"{', '.join(fixes)}: {measure}"))
    for release, verdict, reason, fixes in _complaints(results):
        complain(f"{', '.join(fixes)} on {release}: {verdict}: {reason}")


def _tables(results: list[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """(title, first column, rows) of each table: one for each release or, where the releases are more, for each fix."""
    by_release: dict[str, list[Result]] = {}
    by_fix: dict[str, list[Result]] = {}
    for result in results:
        by_release.setdefault(f"{result.engine} {result.release}", []).append(result)
        by_fix.setdefault(result.fix, []).append(result)
    if len(by_release) <= len(by_fix):
        yield from ((release, "fix", group) for release, group in by_release.items())
    else:
        yield from ((fix, "release", group) for fix, group in by_fix.items())


def _complaints(results: list[Result]) -> Iterator[tuple[str, str, str, list[str]]]:
    """(release, verdict, reason, fixes with their seeds): what went wrong for several in one way is said once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        if not result.holds or result.verdict == NOT_JUDGED:
            seed = f" (--seed {result.seed})" if result.seed is not None else ""
            key = f"{result.engine} {result.release}", result.verdict, result.reason
            found.setdefault(key, []).append(result.fix + seed)
    for key, fixes in found.items():
        yield *key, fixes


def _measures(results: list[Result]) -> dict[str, list[str]]:
    """Measures that stand in place of the relative error, each with its fixes."""
    found: dict[str, list[str]] = {}
    for result in results:
        if result.measure and result.verdict == PROVEN and result.fix not in found.setdefault(result.measure, []):
            found[result.measure].append(result.fix)
    return found


def _error(result: Result, error: float | None) -> Text:
    if error is None:
        return Text("-") if result.control_identical is None else coloured("not finite", "red")
    return coloured(f"{error:.2g}", "red" if error > RED else "green" if error < GREEN else "yellow")
