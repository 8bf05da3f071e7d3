#!/usr/bin/env python3
"""Serves several engine releases on one machine, a script of this folder for each, as many at once as its GPUs have room for.

    python -m scripts.serve.releases < jobs

A job is a line: the folders of a release, joined by ":" as PYTHONPATH has them, and what runs there, `scripts.serve.served` if
nothing is said:

    /opt/vllm-0.33.0:/opt/vllm-needs
    SERVERS=2 /opt/vllm-0.25.1:/opt/vllm-needs scripts.serve.gpu_probe --case vllm-hybrid --seconds 300
    GPUS=2 SERVERS=4 /opt/vllm-0.24.0:/opt/vllm-needs scripts.serve.gpu_e2e_vllm --case dcp-graphs
    LD_PRELOAD=/opt/torch/libown.so /opt/sglang-0.5.23:/opt/torch

What stands before the folders is the job's environment. SERVERS says how many servers it starts on a GPU, GPUS how many GPUs it
takes. The first job that there is room for begins, and a folder that is not there yet is waited for: a release can be unpacked
while others serve. Servers of one engine alone run at the same time. `--servers N` says how many fit on a GPU, `--each N` how
many a job starts that does not say it. A job's evidence goes to OUT when it ends, its output to OUT/jobs. Exits 1 where a job
does.
"""

from __future__ import annotations

import argparse
import itertools
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
    environment: tuple[tuple[str, str], ...]
    folders: tuple[Path, ...]
    words: tuple[str, ...]

    @classmethod
    def of(cls, line: str) -> Job:
        words = line.split()
        own = list(itertools.takewhile(re.compile(r"[A-Za-z_]\w*=").match, words))
        folders, *words = words[len(own) :]
        variables = tuple((name, value) for name, _, value in (word.partition("=") for word in own))
        return cls(variables, tuple(map(Path, folders.split(":"))), tuple(words or [_SERVED]))

    @property
    def engine(self) -> str:
        """The first word of its first folder's name."""
        return re.split(r"[-=]", self.folders[0].name)[0]

    @property
    def name(self) -> str:
        return re.sub(r"[^\w.]+", "-", " ".join([self.folders[0].name, *self.words[0].split(".")[-1:], *self.words[1:]]))

    @property
    def gpus(self) -> int:
        return int(dict(self.environment).get("GPUS", 1))

    def servers(self, each: int) -> int:
        """That it starts on each of its GPUS."""
        return int(dict(self.environment).get("SERVERS", each))


@dataclass
class Running:
    job: Job
    process: subprocess.Popen[bytes]
    gpus: Sequence[int]


def room(job: Job, running: Sequence[Running], gpus: Sequence[int], each: int, servers: int) -> list[int] | None:
    """The GPUs that have room for this job, the emptiest ones; None: there is none. An empty GPU takes any job."""
    used = {gpu: sum(one.job.servers(each) for one in running if gpu in one.gpus) for gpu in gpus}
    emptiest = sorted(gpus, key=used.__getitem__)[: job.gpus]
    fits = all(not used[gpu] or used[gpu] + job.servers(each) <= servers for gpu in emptiest)
    return emptiest if fits and len(emptiest) == job.gpus else None


def next_job(
    waiting: Sequence[Job], running: Sequence[Running], gpus: Sequence[int], each: int, servers: int
) -> tuple[Job, list[int]] | None:
    """The first whose folders are all there and which there is room for, of the engine that runs, if any does; and its GPUs."""
    engine = running[0].job.engine if running else None
    for job in waiting:
        if job.engine == (engine or job.engine) and all(folder.is_dir() for folder in job.folders):
            found = room(job, running, gpus, each, servers)
            if found is not None:
                return job, found
    return None


def run(lines: Iterator[str], options: argparse.Namespace) -> list[str]:
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
            _gather(one.job, options.out)
            e2e.say(f"{one.job.name}: {'done' if not one.process.returncode else f'exit {one.process.returncode}'}")
            failed += [one.job.name] if one.process.returncode else []
        found = next_job(waiting, running, options.gpus, options.each, options.servers)
        if found and time.monotonic() - began > _APART_S:
            job, on = found
            waiting.remove(job)
            began = time.monotonic()
            running.append(Running(job, _start(job, on, options.out), on))
            e2e.say(f"{job.name}: begins on GPU {', '.join(map(str, on))}")
        elif waiting and not running and not more and time.monotonic() - began > _PATIENCE_S:
            return failed + [f"{job.name}: its folders are not there, or its GPUs" for job in waiting]
    return failed


def _start(job: Job, gpus: Sequence[int], out: Path) -> subprocess.Popen[bytes]:
    own = {"PYTHONPATH": ":".join(map(str, job.folders)), "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
    log = out / "jobs" / f"{job.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        command = [sys.executable, "-m", *job.words, "--out", str(out / "jobs" / job.name)]
        environment = os.environ | own | dict(job.environment)
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def _gather(job: Job, out: Path) -> None:
    """Puts a job's cases beside those of the others."""
    for path in sorted((out / "jobs" / job.name).glob("e2e-*.json")):
        for name, case in json.loads(path.read_text())["cases"].items():
            e2e.write(out, case["machine"], name, case)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("e2e-out"), help="folder of the evidence files")
    parser.add_argument("--each", type=int, default=8, help="servers that a job starts on a GPU")
    parser.add_argument("--servers", type=int, default=12, help="that fit on a GPU: one takes up to 6.5 GB")
    parser.add_argument("--gpus", type=int, nargs="+", help="numbers of the GPUs that jobs may take, all if nothing is said")
    options = parser.parse_args()
    options.gpus = options.gpus or list(range(max(1, e2e.gpus())))
    e2e.require_attnfix()
    failed = run(iter(sys.stdin.readline, ""), options)
    print("\n".join(failed) or "all jobs ended well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
