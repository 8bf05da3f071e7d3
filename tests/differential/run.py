"""Has both sides run cases, and appends what came out to a file of JSON lines: a run goes on where the last one stopped."""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.prove.runner import CPU

from . import branches as measured
from . import judge, space
from .protocol import Answer, Case

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "differential"
#: A case that computes for longer hangs. One takes 1 s emulated, and up to 20 s interpreted
SECONDS = 120.0
_START_S = 600
#: Without another result, cheaper. Compiled for a CPU, a layer's own operators say nothing of a GPU's, and take seconds; no
#: stand-in uses FlashInfer's workspaces of 400 MB, which torch would fill with NaN
_CHEAPER = {
    "TORCHDYNAMO_DISABLE": "1", "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": str(16 << 20),
    "SGLANG_FLASHINFER_WORKSPACE_SIZE": str(16 << 20),
}  # fmt: skip
_PATCHED = ("sabotage", "branches", "only")
_TRIES = 3
_LONG = 8  # steps of a configuration that counts as long
_SAVE_EVERY_S = 20  # what is measured: a run that is killed loses so much of it


class Side:
    """A process that has imported the engine. It is started anew where it ends, as when the machine runs out of memory."""

    def __init__(self, engine: str, release: str, *, stock: bool, all_fixes: bool = False, off: Sequence[str] = ()):
        self._scratch = tempfile.TemporaryDirectory(prefix="attnfix-differential-")
        self.site = fetch.fetch(engine, release, progress=False)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")} | CPU
        for name in ("SGLANG_PLUGINS", "VLLM_PLUGINS"):
            environment.pop(name, None)
        environment |= {
            "PYTHONPATH": os.pathsep.join((str(self.site), str(ROOT))), "ATTNFIX_RUN_DIR": self._scratch.name,
            "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONHASHSEED": "0", "TMPDIR": self._scratch.name,
            **_CHEAPER,
        }  # fmt: skip
        if stock:
            environment["ATTNFIX"] = "0"
        else:
            environment |= {fix.switch: "1" for fix in FIXES if all_fixes and not fix.default}
            environment |= {BY_ID[fix].switch: "0" for fix in off}
        self._log = Path(self._scratch.name) / "stderr"
        self._command = [sys.executable, "-m", "tests.differential.side", engine, str(self.site)]
        self._environment = environment
        self._start()

    def _start(self) -> None:
        # A session of its own: Ctrl-C is for the run, which ends its sides
        self._process = subprocess.Popen(
            self._command, env=self._environment, cwd=self._scratch.name, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log.open("w"), text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip
        self._read(_START_S)

    def ask(self, case: Case, seconds: float = SECONDS, **more: Any) -> None:
        """Both sides of a case may be asked before either is heard."""
        self._patience = 10 * seconds + _START_S
        assert self._process.stdin
        with suppress(BrokenPipeError):  # `answer` says it
            self._process.stdin.write(json.dumps({"case": case, "seconds": seconds, **more}) + "\n")
            self._process.stdin.flush()

    def answer(self) -> Answer:
        """To what was asked last. A side that ended, or says nothing, is a result."""
        began = time.monotonic()
        try:
            answer: Answer = self._read(self._patience)
        except _Silent:
            ended = "died" if self._process.poll() is not None else "hung"
            self._end()
            self._start()
            return {"ended": ended, "steps": [], "seconds": round(time.monotonic() - began, 3)}
        return answer

    def run(self, case: Case, seconds: float = SECONDS, **more: Any) -> Answer:
        self.ask(case, seconds, **more)
        return self.answer()

    def _read(self, seconds: float) -> Any:
        assert self._process.stdout
        if select.select([self._process.stdout], [], [], seconds)[0] and (line := self._process.stdout.readline()):
            return json.loads(line)
        raise _Silent(f"the side says nothing:\n{self.said()}")

    def said(self) -> str:
        """The end of what it wrote to standard error."""
        return self._log.read_text(errors="replace")[-8000:]

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._end()
        self._scratch.cleanup()


class _Silent(RuntimeError):
    """A side ended, or took longer than any case may."""


@dataclass
class Sides:
    """Both, of one release. Used as a context. off: fixes that are switched off."""

    engine: str
    release: str
    all_fixes: bool = False
    off: Sequence[str] = ()

    def __enter__(self) -> Sides:
        self.stock = Side(self.engine, self.release, stock=True)
        self.patched = self._patched(self.all_fixes)
        self._whole: Side | None = None
        return self

    def __exit__(self, *error: Any) -> None:
        for side in (self.stock, self.patched, *([self._whole] if self._whole else [])):
            side.close()

    def _patched(self, all_fixes: bool) -> Side:
        return Side(self.engine, self.release, stock=False, all_fixes=all_fixes, off=self.off)

    def answers(self, case: Case, patched: Side | None = None, **more: Any) -> tuple[Answer, Answer]:
        """Of both sides, stock first. A port that was free may be taken when the engine listens: then both are asked again."""
        patched = patched or self.patched
        for _ in range(_TRIES):
            self.stock.ask(case, **{name: value for name, value in more.items() if name not in _PATCHED})
            patched.ask(case, **more)
            both = self.stock.answer(), patched.answer()
            if not any("EADDRINUSE" in str(answer.get("error")) for answer in both):
                break
        return both

    def judge(self, case: Case, **more: Any) -> tuple[judge.Verdict, Answer, Answer]:
        """more: of a request to a side; `_PATCHED` of it for the patched side alone.

        What is wrong may be a bug that is known. Then the case runs once more without that bug: what is right there is no fault
        of a correction, and nothing new. Or a fix corrects it that is off by default.
        """
        return self._judge(case, more, self.patched, self.all_fixes)

    def _judge(self, case: Case, more: dict[str, Any], side: Side, all_fixes: bool) -> tuple[judge.Verdict, Answer, Answer]:
        """side: the patched one, with all fixes on, or those that are on by default."""
        case = space.whole(case)
        stock, patched = self.answers(case, side, **more)
        known = partial(space.space_of(self.engine).known, self.release, case["settings"])
        verdict = judge.judge(stock, patched, known)
        if verdict.known:
            other: Any = {**case, "settings": case["settings"] | verdict.known.without}
            verdict = judge.blamed(verdict, self._judge(other, more, side, all_fixes)[0])
        if verdict.kind == judge.MISSED and not all_fixes:
            self._whole = self._whole or self._patched(True)
            whole, _, answer = self._judge(case, more, self._whole, True)
            off = [fix for fix in answer.get("corrections", {}) if not BY_ID[fix].default]
            verdict = judge.left_off(verdict, whole, off)
        return verdict, stock, patched


@dataclass
class Record:
    """One line of a file. The case itself is kept where something is the matter with it. known: the bug that is to blame."""

    index: int
    seed: int
    space: str
    verdict: str
    why: str
    sign: str
    in_band: bool
    settings: dict[str, Any]
    steps: int
    kinds: list[str]
    corrections: dict[str, int]
    effective: list[str]
    seconds: list[float]
    case: Case | None = None
    known: str = ""


def record(index: int, seed: int, case: Case, verdict: judge.Verdict, stock: Answer, patched: Answer) -> Record:
    kinds = {kind for step in patched["steps"] for kind in step["kinds"]}
    keep = verdict.kind in judge.FAILING or verdict.kind == judge.FIND or verdict.in_band
    return Record(
        index, seed, space.version(space.space_of(case["engine"])), verdict.kind, verdict.why, verdict.sign, verdict.in_band,
        case["settings"], len(stock["steps"]), sorted(kinds), patched.get("corrections", {}), patched.get("effective", []),
        [stock["seconds"], patched["seconds"]], case if keep else None,
        verdict.known.what if verdict.known else "",
    )  # fmt: skip


def file_of(engine: str, release: str) -> Path:
    return BUILD / f"{engine}-{release}.jsonl"


def named(path: Path) -> list[str]:
    """The engine and the release that a file of results is about; its name may go on behind them."""
    return path.stem.split("-")[:2]


def records(path: Path) -> Iterator[Record]:
    """Those of this version of the space. A line that a run could not end, because it was killed, is left out."""
    if not path.exists():
        return
    now = space.version(space.space_of(named(path)[0]))
    with path.open(errors="replace") as lines:
        for line in lines:
            try:
                found = json.loads(line)
                if found["space"] == now:
                    yield Record(**found)
            except (ValueError, KeyError, TypeError):
                continue


def _appending(path: Path) -> Any:
    """The file, for a new line: what a killed run left of its last one is a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab+")
    if file.tell():
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
    return file


def run(
    engine: str, release: str, *, seed: int, most: int, until: float, say: Callable[[Record], None], all_fixes: bool = False,
    off: Sequence[str] = (), axes: dict[str, Any] | None = None, path: Path | None = None, jobs: int = 1,
    branches: bool = False, **more: Any,
) -> list[Record]:  # fmt: skip
    """Run until there are `most` cases of this seed, or until that time of `time.monotonic`. Returns those that ran now.

    jobs: how many cases run at a time, each on both sides at once. branches: measure them, too (`branches`).
    """
    path = path or file_of(engine, release)
    done = {old.index for old in records(path) if old.seed == seed}
    made: list[Record] = []
    entered = measured.Total(measured.file_of(path)) if branches else None
    if entered:
        more = {**more, "branches": True}
    with ExitStack() as stack:
        free: queue.SimpleQueue[Sides] = queue.SimpleQueue()
        for _ in range(jobs):
            free.put(stack.enter_context(Sides(engine, release, all_fixes, off)))
        file = stack.enter_context(_appending(path))
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        if entered:
            stack.callback(entered.save)

        def judged(case: Case) -> Any:
            sides = free.get()
            try:
                return sides.judge(case, **more)
            finally:
                free.put(sides)

        def take(future: Any, index: int, case: Case) -> None:
            verdict, stock, patched = future.result()
            if entered and "arcs" in patched:
                entered.add(patched["arcs"], patched["armed"])
                entered.save(_SAVE_EVERY_S)
            made.append(record(index, seed, case, verdict, stock, patched))
            file.write(json.dumps(asdict(made[-1])).encode() + b"\n")
            file.flush()
            say(made[-1])

        running: dict[Any, tuple[int, Case]] = {}
        try:
            for index, case in space.cases(engine, release, seed, axes):
                if index >= most or time.monotonic() > until:
                    break
                if index in done:
                    continue
                running[pool.submit(judged, case)] = (index, case)
                if len(running) == jobs:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        take(future, *running.pop(future))
        finally:  # who stops the run waits for the cases that have begun
            for future in list(running):
                take(future, *running.pop(future))
    return made


def summary(path: Path, every: Sequence[Record] | None = None) -> dict[str, Any]:
    """What the lines of a file add up to."""
    found = list(records(path)) if every is None else list(every)
    engine, release = named(path)
    drawn = space.space_of(engine)
    possible = space.possible_pairs(drawn, release)
    covered = set().union(*(space.pairs_of(drawn, one.settings) for one in found if one.verdict != judge.REFUSED)) & possible
    counts = judge.totals([judge.Verdict(one.verdict, one.why, one.sign, one.in_band) for one in found])
    signs: dict[str, int] = {}
    for one in found:
        if one.verdict in (*judge.FAILING, judge.FIND):
            signs[f"{one.verdict}: {one.sign}"] = signs.get(f"{one.verdict}: {one.sign}", 0) + 1
    known: dict[str, int] = {}
    for one in found:
        if one.known:
            known[one.known] = known.get(one.known, 0) + 1
    corrected: dict[str, int] = {}
    first: dict[str, dict[str, int]] = {}  # where stock was first seen wrong, and the fix corrected it
    took = 0.0
    for count, one in enumerate(found, 1):
        took += sum(one.seconds)
        for fix in one.corrections:
            corrected[fix] = corrected.get(fix, 0) + 1
            if one.verdict == judge.CORRECTED:
                first.setdefault(fix, {"configurations": count, "seconds": round(took)})
    kinds = sorted({kind for one in found for kind in one.kinds})
    return {
        "engine": engine, "release": release, "space": space.version(drawn), "configurations": len(found),
        "steps": sum(one.steps for one in found), "long": sum(one.steps >= _LONG for one in found),
        "seeds": sorted({one.seed for one in found}), **counts,
        "pairs": [len(covered), len(possible)], "kinds": kinds, "corrected_by_fix": corrected, "first_by_fix": first,
        "signs": signs, "known": known, "seconds": round(sum(sum(one.seconds) for one in found)), **_branches(path),
    }  # fmt: skip


def _branches(path: Path) -> dict[str, Any]:
    if not (file := measured.file_of(path)).exists():
        return {}
    engine, release = named(path)
    site = fetch.fetch(engine, release, progress=False)
    return {"branches": measured.Total(file).summary(engine, site)}
