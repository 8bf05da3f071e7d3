#!/usr/bin/env python3
"""Serves several engine releases on one machine, a script of this folder for each, as many at once as its GPUs have room for.

    python -m scripts.serve.releases < jobs

A job is a line: the folders of a release, joined by ":" as PYTHONPATH has them, and what runs there, `scripts.serve.served` if
nothing is said:

    /opt/vllm-0.33.0:/opt/vllm-needs
    /opt/vllm-0.25.1:/opt/vllm-needs scripts.serve.gpu_probe --case vllm-hybrid --seconds 300

Jobs are taken as they come, and a folder that is not there yet is waited for: a release can be unpacked while others serve.
Servers of one engine alone run at the same time. `--servers N` says how many fit on a GPU, `--each N` how many a job starts.
Evidence of all goes to OUT, each job's output to OUT/jobs. Exits 1 where a job does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from scripts.serve import e2e

_SERVED = "scripts.serve.served"
_APART_S = 4.0  # so that no two look for a free port at once
_PATIENCE_S = 900.0  # for a folder


@dataclass(frozen=True)
class Job:
    folders: tuple[Path, ...]
    words: tuple[str, ...]

    @classmethod
    def of(cls, line: str) -> Job:
        folders, *words = line.split()
        return cls(tuple(map(Path, folders.split(":"))), tuple(words or [_SERVED]))

    @property
    def engine(self) -> str:
        """The first word of its first folder's name."""
        return re.split(r"[-=]", self.folders[0].name)[0]

    @property
    def name(self) -> str:
        return re.sub(r"[^\w.]+", "-", " ".join([self.folders[0].name, *self.words[0].split(".")[-1:], *self.words[1:]]))


@dataclass
class Running:
    job: Job
    process: subprocess.Popen[bytes]
    gpu: int


def room(running: Sequence[Running], gpus: int, each: int, servers: int) -> int | None:
    """The GPU that has room for one more job, the emptiest one; None: there is none."""
    used = [each * sum(one.gpu == gpu for one in running) for gpu in range(gpus)]
    emptiest = min(range(gpus), key=used.__getitem__)
    return emptiest if not used[emptiest] or used[emptiest] + each <= servers else None


def next_job(waiting: Sequence[Job], running: Sequence[Running]) -> Job | None:
    """The first whose folders are all there, of the engine that runs, if any does."""
    engine = running[0].job.engine if running else None
    ready = (job for job in waiting if all(folder.is_dir() for folder in job.folders))
    return next((job for job in ready if job.engine == (engine or job.engine)), None)


def run(lines: Iterator[str], gpus: int, options: argparse.Namespace) -> list[str]:
    """Runs all; what failed."""
    coming: SimpleQueue[str | None] = SimpleQueue()
    threading.Thread(target=lambda: [coming.put(line) for line in [*lines, None]], daemon=True).start()
    waiting: list[Job] = []
    running: list[Running] = []
    failed: list[str] = []
    more, began = True, time.monotonic()
    while more or waiting or running:
        try:
            line = coming.get(timeout=0.5)
            more = line is not None
            if line and line.strip():
                waiting.append(Job.of(line))
        except Empty:
            pass
        for one in [one for one in running if one.process.poll() is not None]:
            running.remove(one)
            e2e.say(f"{one.job.name}: {'done' if not one.process.returncode else f'exit {one.process.returncode}'}")
            failed += [one.job.name] if one.process.returncode else []
        gpu = room(running, gpus, options.each, options.servers)
        job = next_job(waiting, running)
        if job and gpu is not None and time.monotonic() - began > _APART_S:
            waiting.remove(job)
            began = time.monotonic()
            running.append(Running(job, _start(job, gpu, options.out), gpu))
            e2e.say(f"{job.name}: begins on GPU {gpu}")
        elif waiting and not running and not more and time.monotonic() - began > _PATIENCE_S:
            return failed + [f"{job.name}: its folders are not there" for job in waiting]
    return failed


def _start(job: Job, gpu: int, out: Path) -> subprocess.Popen[bytes]:
    own = {"PYTHONPATH": ":".join(map(str, job.folders)), "CUDA_VISIBLE_DEVICES": str(gpu)}
    log = out / "jobs" / f"{job.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        command = [sys.executable, "-m", *job.words, "--out", str(out / "jobs" / job.name)]
        return subprocess.Popen(command, env=os.environ | own, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("e2e-out"), help="folder of the evidence files")
    parser.add_argument("--each", type=int, default=8, help="servers that a job starts")
    parser.add_argument("--servers", type=int, default=12, help="that fit on a GPU: one takes up to 6.5 GB")
    options = parser.parse_args()
    e2e.require_attnfix()
    failed = run(iter(sys.stdin.readline, ""), max(1, e2e.gpus()), options)
    for path in sorted((options.out / "jobs").glob("*/e2e-*.json")):
        for name, case in json.loads(path.read_text())["cases"].items():
            e2e.write(options.out, case["machine"], name, case)
    print("\n".join(failed) or "all jobs ended well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
