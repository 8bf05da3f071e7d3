"""Many at once: threads that import the engine's modules, spawned and forked children. ROBUSTNESS_SEED repeats a run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import Row, draw_seed, plain_environment
from .faults import REAL

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 1500
THREADS = "64 threads import an engine's target modules at once, activate and ask for the status"
CHILDREN = "children of a small engine, at most 16 alive at a time: spawned, forked, forked from a parent that serves"
REAL_CHILDREN = "children that import a real engine, at most 2 alive at a time: forked and spawned"


def requests(quick: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """(row, request) of every process to run."""
    for _ in range(4 if quick else 40):
        yield THREADS, {"method": "threads", "count": 64}
    for method, few, many in (("spawn", 10, 56), ("fork", 15, 56), ("loaded", 15, 56)):
        yield CHILDREN, {"method": method, "count": few if quick else many, "alive": 16}
    if quick:
        return
    for engine, release, modules, expected in REAL:
        real = {"on": "real", "engine": engine, "release": release, "modules": modules, "expected": expected, "alive": 1}
        yield THREADS, {**real, "method": "threads", "count": 64}
        yield REAL_CHILDREN, {**real, "method": "fork", "count": 12}
        yield REAL_CHILDREN, {**real, "method": "spawn", "count": 4}


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    seed = draw_seed()
    say(f"seed {seed}")
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch, ThreadPoolExecutor(2) as pool:
        subprocess.run([sys.executable, HERE / "small_engine.py", scratch], check=True, timeout=300)
        todo = [(what, {**request, "seed": seed + number}) for number, (what, request) in enumerate(requests(quick))]
        began = time.monotonic()
        for (what, request), told in zip(todo, pool.map(lambda job: _answer(job[1], Path(scratch)), todo)):
            row = rows.setdefault(what, Row(what, 0))
            row.tried += told["tried"]
            if told.get("cuda") is False and request["method"] == "loaded":
                row.not_run.append("CUDA initialised in the parent: there is no GPU")
            about = f"{request['method']} on {request.get('engine', 'the small engine')}, seed {request['seed']}"
            row.wrong += [f"{about}: {sentence}" for sentence in told["wrong"]]
            say(f"{about}: {told['tried']} after {time.monotonic() - began:.0f} s")
    return list(rows.values())


def _answer(request: dict[str, Any], folder: Path, **variables: str) -> dict[str, Any]:
    """Run one process with a hard limit. What real threads stumble over counts where stock threads do not."""
    request = {"on": "small", "modules": [], "folder": str(folder), **request}
    environment = plain_environment()
    if request["on"] == "real":
        from attnfix.compat.releases import fetch
        from tests.support.environments import CPU

        environment |= {**CPU, "PYTHONPATH": str(fetch.fetch(request["engine"], request["release"]))}
    command = [sys.executable, str(HERE / "threads_and_forks_run.py"), json.dumps(request)]
    try:
        done = subprocess.run(
            command, env=environment | variables, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S
        )  # fmt: skip
        told = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"tried": 1, "wrong": [f"no end within {TIMEOUT_S} s"]}
    except (ValueError, IndexError):
        return {"tried": 1, "wrong": [f"no answer: {done.stderr[-500:]}"]}
    if told.get("errors") and not variables and not _answer(request, folder, ATTNFIX="0").get("errors"):
        told["wrong"].append(f"raised, and stock does not: {told['errors'][:3]}")
    return told
