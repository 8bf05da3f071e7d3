"""Has both sides run cases, and appends what came out to a file of JSON lines: a run goes on where the last one stopped."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.prove.runner import CPU

from . import judge, space
from .protocol import Answer, Case

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "differential"
#: A case that computes for longer hangs. One takes 1 s emulated, and up to 20 s interpreted
SECONDS = 120.0
_START_S = 600


class Side:
    """A process that has imported the engine."""

    def __init__(self, engine: str, release: str, *, stock: bool, all_fixes: bool = False, off: Sequence[str] = ()):
        self._scratch = tempfile.TemporaryDirectory(prefix="attnfix-differential-")
        site = fetch.fetch(engine, release, progress=False)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")} | CPU
        for name in ("SGLANG_PLUGINS", "VLLM_PLUGINS"):
            environment.pop(name, None)
        environment |= {
            "PYTHONPATH": os.pathsep.join((str(site), str(ROOT))), "ATTNFIX_RUN_DIR": self._scratch.name,
            "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONHASHSEED": "0",
        }  # fmt: skip
        if stock:
            environment["ATTNFIX"] = "0"
        else:
            environment |= {fix.switch: "1" for fix in FIXES if all_fixes and not fix.default}
            environment |= {BY_ID[fix].switch: "0" for fix in off}
        self._log = Path(self._scratch.name) / "stderr"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.differential.side", engine, str(site)], env=environment, cwd=self._scratch.name,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log.open("w"), text=True, bufsize=1,
        )  # fmt: skip
        self._read(_START_S)

    def run(self, case: Case, seconds: float = SECONDS, **more: Any) -> Answer:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"case": case, "seconds": seconds, **more}) + "\n")
        self._process.stdin.flush()
        answer: Answer = self._read(10 * seconds + _START_S)
        return answer

    def _read(self, seconds: float) -> Any:
        assert self._process.stdout
        if select.select([self._process.stdout], [], [], seconds)[0] and (line := self._process.stdout.readline()):
            return json.loads(line)
        raise RuntimeError(f"the side says nothing:\n{self.said()}")

    def said(self) -> str:
        """The end of what it wrote to standard error."""
        return self._log.read_text(errors="replace")[-8000:]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._scratch.cleanup()


@dataclass
class Sides:
    """Both, of one release. Used as a context. off: fixes that are switched off."""

    engine: str
    release: str
    all_fixes: bool = False
    off: Sequence[str] = ()

    def __enter__(self) -> Sides:
        self.stock = Side(self.engine, self.release, stock=True)
        self.patched = Side(self.engine, self.release, stock=False, all_fixes=self.all_fixes, off=self.off)
        return self

    def __exit__(self, *error: Any) -> None:
        for side in (self.stock, self.patched):
            side.close()

    def judge(self, case: Case, **more: Any) -> tuple[judge.Verdict, Answer, Answer]:
        """more: for the patched side alone, where it begins with `sabotage`; else for both."""
        case = space.whole(case)
        both = {name: value for name, value in more.items() if name != "sabotage"}
        stock, patched = self.stock.run(case, **both), self.patched.run(case, **more)
        return judge.judge(stock, patched), stock, patched


@dataclass
class Record:
    """One line of a file. The case itself is kept where something is the matter with it."""

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


def record(index: int, seed: int, case: Case, verdict: judge.Verdict, stock: Answer, patched: Answer) -> Record:
    kinds = {kind for step in patched["steps"] for kind in step["kinds"]}
    keep = verdict.kind in judge.FAILING or verdict.kind == judge.FIND or verdict.in_band
    return Record(
        index, seed, space.version(space.space_of(case["engine"])), verdict.kind, verdict.why, verdict.sign, verdict.in_band,
        case["settings"], len(stock["steps"]), sorted(kinds), patched.get("corrections", {}), patched.get("effective", []),
        [stock["seconds"], patched["seconds"]], case if keep else None,
    )  # fmt: skip


def file_of(engine: str, release: str) -> Path:
    return BUILD / f"{engine}-{release}.jsonl"


def records(path: Path) -> Iterator[Record]:
    """Those of this version of the space."""
    if not path.exists():
        return
    engine = path.name.partition("-")[0]
    now = space.version(space.space_of(engine))
    for line in path.read_text().splitlines():
        if line.endswith("}") and (found := json.loads(line))["space"] == now:
            yield Record(**found)


def run(
    engine: str, release: str, *, seed: int, most: int, until: float, say: Callable[[Record], None], all_fixes: bool = False,
    off: Sequence[str] = (), axes: dict[str, Any] | None = None, path: Path | None = None, **more: Any,
) -> list[Record]:  # fmt: skip
    """Run until there are `most` cases of this seed, or until that time of `time.monotonic`. Returns those that ran now."""
    path = path or file_of(engine, release)
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {old.index for old in records(path) if old.seed == seed}
    made: list[Record] = []
    with Sides(engine, release, all_fixes, off) as sides, path.open("a") as file:
        for index, case in space.cases(engine, release, seed, axes):
            if index >= most or time.monotonic() > until:
                break
            if index in done:
                continue
            verdict, stock, patched = sides.judge(case, **more)
            made.append(record(index, seed, case, verdict, stock, patched))
            print(json.dumps(asdict(made[-1])), file=file, flush=True)
            say(made[-1])
    return made


def summary(path: Path, every: Sequence[Record] | None = None) -> dict[str, Any]:
    """What the lines of a file add up to."""
    found = list(records(path)) if every is None else list(every)
    engine = path.name.partition("-")[0]
    drawn = space.space_of(engine)
    possible = space.all_pairs(drawn)
    covered = set().union(*(space.pairs_of(drawn, one.settings) for one in found if one.verdict != judge.REFUSED)) & possible
    counts = judge.totals([judge.Verdict(one.verdict, one.why, one.sign, one.in_band) for one in found])
    signs: dict[str, int] = {}
    for one in found:
        if one.verdict in (*judge.FAILING, judge.FIND):
            signs[f"{one.verdict}: {one.sign}"] = signs.get(f"{one.verdict}: {one.sign}", 0) + 1
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
        "engine": engine, "release": path.stem.partition("-")[2], "space": space.version(drawn), "configurations": len(found),
        "steps": sum(one.steps for one in found), "seeds": sorted({one.seed for one in found}), **counts,
        "pairs": [len(covered), len(possible)], "kinds": kinds, "corrected_by_fix": corrected, "first_by_fix": first,
        "signs": signs, "seconds": round(sum(sum(one.seconds) for one in found)),
    }  # fmt: skip
