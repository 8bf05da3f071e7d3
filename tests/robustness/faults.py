"""Faults at every step of attnfix, and around it: its functions behave stock or the fix is wholly armed, never half.

A step is a line of attnfix that can raise, each tried the first two times it runs and the last. ROBUSTNESS_SEED repeats a run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import Row, broken_environments, draw_seed, plain_environment, upgraded

HERE = Path(__file__).resolve().parent
KINDS = ("exception", "MemoryError", "KeyboardInterrupt", "killed")
#: Releases with an affected fix, its target modules, and the fix
REAL = (
    ("sglang", "0.5.10.post1", ("sglang.srt.layers.attention.trtllm_mla_backend",), ("sglang.zero-kv-rows",)),
    ("vllm", "0.20.2", ("vllm.model_executor.layers.attention.mla_attention",), ("vllm.empty-context-chunks",)),
)
TIMEOUT_S = 1800


@dataclass
class Batch:
    """Injections that one parent forks; `sample` of the steps for each kind, 0 for all of them."""

    what: str
    kinds: tuple[str, ...]
    sample: int = 0
    on: str = "small"
    warm: bool = True
    strict: bool = False
    engine: str | None = None
    release: str | None = None
    modules: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    answers: list[dict[str, Any]] = field(default_factory=list)


def batches(quick: bool) -> Iterator[Batch]:
    inside = "a fault at each line of hook, gate, arming and record writing, on a small engine"
    if quick:
        yield Batch(inside, KINDS, sample=25)
        yield Batch("the same, every fix required: refused with code 78 and one line, or armed", KINDS[:1], 15, strict=True)
        return
    for kind in KINDS:
        yield Batch(inside, (kind,))
    yield Batch("a fault while attnfix itself is imported by the hook", KINDS, 150, warm=False)
    yield Batch("a fault and a second one while it is handled", ("two faults",), 600)
    for kind in KINDS[:2]:
        yield Batch("the same, every fix required: refused with code 78 and one line, or armed", (kind,), 400, strict=True)
    yield Batch("a fault at each line of kernel loading, by a stand-in for the CUDA driver", KINDS, on="kernel")
    for engine, release, modules, expected in REAL:
        real = {"on": "real", "warm": False, "engine": engine, "release": release, "modules": modules, "expected": expected}
        yield Batch(f"a fault while {engine} {release} is imported", KINDS, 10, **real)  # type: ignore[arg-type]
        required = f"the same, every fix required: {engine} {release} does not start"
        yield Batch(required, KINDS[:2], 10, strict=True, **real)  # type: ignore[arg-type]


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    seed = draw_seed()
    say(f"seed {seed}")
    rows: dict[str, Row] = {}
    outcomes: dict[str, Counter] = {}
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch, ThreadPoolExecutor(2) as pool:
        for batch in pool.map(lambda batch: _done(batch, Path(scratch), seed), list(batches(quick))):
            say(f"{batch.what}: {', '.join(batch.kinds)}: {len(batch.answers) - 2} injections")
            row = rows.setdefault(batch.what, Row(batch.what, 0))
            _judge(batch, seed, row, outcomes.setdefault(batch.what, Counter()))
    for what, row in rows.items():
        row.figures = {f"came out {outcome}": str(count) for outcome, count in sorted(outcomes[what].items())}
    return [*rows.values(), _surroundings(quick, say), *([] if quick else [_upgraded(say)])]


def _done(batch: Batch, scratch: Path, seed: int) -> Batch:
    """Run a batch in a process of its own."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    subprocess.run([sys.executable, HERE / "small_engine.py", folder], check=True, timeout=300)
    request = {
        "on": batch.on, "kinds": batch.kinds, "sample": batch.sample, "warm": batch.warm, "strict": batch.strict, "seed": seed,
        "engine": batch.engine, "modules": batch.modules, "expected": batch.expected, "folder": str(folder),
    }  # fmt: skip
    environment = plain_environment()
    environment |= {"ATTNFIX_STRICT": "1"} if batch.strict else {}
    if batch.engine and batch.release:
        from attnfix.compat.releases import fetch
        from tests.support.environments import CPU

        environment |= {**CPU, "PYTHONPATH": str(fetch.fetch(batch.engine, batch.release))}
    command = [sys.executable, str(HERE / "faults_run.py"), json.dumps(request)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    batch.answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        batch.answers.append({"broken": done.stderr[-500:]})
    return batch


def _judge(batch: Batch, seed: int, row: Row, outcomes: Counter) -> None:
    whole, *tried, last = batch.answers or [{"broken": "no answer"}]
    survivor = last.get("survivor", {})
    if not whole.get("whole", {}).get("armed") or (batch.on != "kernel" and not survivor.get("armed")):
        row.wrong.append(f"seed {seed}: a process without a fault is not armed: {whole}, {last}")
    row.tried += len(tried)
    for answer in tried:
        outcomes[answer.get("outcome")] += 1
        if answer.get("wrong"):
            row.wrong.append(f"seed {seed}: {answer['kind']} at {answer['site'] or answer['at']}: {answer['wrong']}")


def _surroundings(quick: bool, say: Callable[[str], None]) -> Row:
    row = Row("a ledger, disk, home folder or engine file that is missing, broken, full, forbidden or replaced", 0)
    cases = list(broken_environments.cases())
    if quick:
        cases = [case for case in cases if "cut off" not in case.name or "50 %" in case.name]
    with ThreadPoolExecutor(2) as pool:
        for case, found in zip(cases, pool.map(_tried, cases)):
            if isinstance(found, broken_environments.NotHere):
                row.not_run.append(f"{case.name}: {found}")
                continue
            row.tried += 1
            if found:
                row.wrong.append(f"{case.name}: {found}")
    say(f"{row.what}: {row.tried} cases")
    return row


def _upgraded(say: Callable[[str], None]) -> Row:
    found = upgraded.wrong()
    row = Row(
        "a real engine upgraded in place under a live process: never patched by what was known of the old files", len(found)
    )
    row.wrong = [f"{what}: {sentence}" for what, sentence in found.items() if sentence]
    say(f"{row.what}: {row.tried}")
    return row


def _tried(case: broken_environments.Case) -> str | broken_environments.NotHere | None:
    try:
        return broken_environments.wrong(case)
    except broken_environments.NotHere as absent:
        return absent
