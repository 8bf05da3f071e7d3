"""The kernels beside the engines' own on this machine's GPU: checked against float64, timed in one run, judged by the goals.

    python -m scripts.bench.kernels --fetch DIR         where there is a network: write the peers' files (0.3 MB) and end
    python -m scripts.bench.kernels --peers DIR --out DIR2

Needs torch with CUDA, Triton, nvcc and compiled kernels; without --peers the files are fetched first (needs attnfix[cpu]).
Writes DIR2/kernels-<gpu>.json, which scripts/bench/plot.py draws. How it measures: attnfix.kernels.bench. Exits 1 when a
result of ours is wrong or missing; --goals also when a goal does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attnfix.cli.bench import all_right, print_report, shown
from attnfix.cli.output import coloured, print_line, print_table
from attnfix.compat.releases.errors import ReleaseError
from attnfix.kernels import bench
from scripts.bench import compare_peers, goals

COUNTS = (1000, 1777, 2048, 3001, 4095)  # of tokens with context, each new to a process
HOLDS = {True: coloured("yes", "green"), False: coloured("no", "red")}
UPSTREAM = (
    "sglang's fix-up as its authors measured it on a B200: 4,096 empty tokens, 136 MB, in 22.6 µs, 75.5 % of that GPU's 8 TB/s "
    "(sgl-project/sglang PR 22688)"
)


def measured(folder: Path, work: Path, repeats: int) -> dict:
    """The report: that of `attnfix bench`, with the peers in it, and the goals."""
    started = time.perf_counter()
    with shown(quiet=False) as progress:
        progress("building the peers")
        peers = compare_peers.Peers(folder, work)
        built = time.perf_counter() - started
        report = bench.run(repeats, peers.candidates, progress)
        inputs, _ = bench.small_inputs()
        calls = peers.host_calls(inputs)
        report["host_us"] |= tried({name: partial(bench.host_us, call) for name, call in calls.items()}, "host time")
        progress("first calls")
        ways = {
            "attnfix": lambda i, count: peers.merge(bench.merge_attn_states, i, count),
            f"vLLM {compare_peers.TRITON_COMPILES} Triton": lambda i, count: peers.merge(peers.triton_compiles, i, count),
        }
        firsts = {name: partial(bench.first_calls, call, COUNTS) for name, call in ways.items()}
        report["first_calls_ms"] = tried(firsts, "first calls")
    report |= {"first_calls_of": COUNTS, "peers_failed": peers.failures, "peers": compare_peers.sources(folder)}
    report |= {"upstream": UPSTREAM, "build_seconds": built, "seconds": time.perf_counter() - started}
    report["goals"] = goals.judge(report)
    return report


def tried(jobs: Mapping[str, Callable[[], Any]], what: str) -> dict[str, Any]:
    """The results of the jobs that end well; the others cost a line."""
    results = {}
    for name, job in jobs.items():
        try:
            results[name] = job()
        except Exception as error:
            print(f"attnfix: {what} of {name} not measured: {type(error).__name__}: {error}", file=sys.stderr)
    return results


def print_goals(judged: list[dict]) -> None:
    print_table(
        "Goals",
        ("goal", "needs", "got", "single", "holds"),
        ((f"{g['goal']}  {g['what']}", g["need"], _got(g), g["single"], HOLDS[g["holds"]]) for g in judged),
    )
    for number in sorted({g["goal"] for g in judged}):
        held = [g["holds"] for g in judged if g["goal"] == number]
        print_line(f"goal {number}: {'holds' if all(held) else f'does not hold: {held.count(False)} of {len(held)}'}")


def _got(goal: dict) -> str:
    text = goal["shown"]
    if not goal["holds"] and goal.get("margin") is not None:
        text += f" ({goal['margin']:+.0%})"
    if not goal["holds"] and goal.get("at_copy_rate"):
        text += f"\n{goal['at_copy_rate']:.2f}x at copy rate"
    return text


def file_name(device: str) -> str:
    """kernels-h200.json of "NVIDIA H200"."""
    words = [word for word in re.split(r"[^a-z0-9]+", device.lower()) if word not in ("", "nvidia", "geforce")]
    return f"kernels-{'-'.join(words) or 'gpu'}.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fetch", type=Path, metavar="DIR", help="only write the peers' files there")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="what --fetch wrote: no network is needed")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for kernels-<gpu>.json")
    parser.add_argument("--repeats", type=int, default=bench.REPEATS, help="timed replays per row (default: %(default)s)")
    parser.add_argument("--goals", action="store_true", help="exit 1 unless every goal holds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        # Compile times are measured: nothing of an earlier run may be found.
        os.environ["TRITON_CACHE_DIR"] = f"{work}/triton"
        try:
            if args.fetch:
                files = compare_peers.fetch(args.fetch)
                print(f"{len(files)} files, {sum(file.stat().st_size for file in files)} bytes in {args.fetch}")
                return 0
            if not torch.cuda.is_available():
                raise bench.BenchError("no CUDA GPU here")
            folder = args.peers or Path(work) / "peers"
            if not args.peers:
                compare_peers.fetch(folder)
            report = measured(folder, Path(work), args.repeats)
        except (bench.BenchError, ReleaseError) as error:
            print(f"attnfix: {error}", file=sys.stderr)
            return 1
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / file_name(report["device"])).write_text(json.dumps(report, indent=1) + "\n")
    print_all(report)
    return 0 if all_right(report) and (not args.goals or all(g["holds"] for g in report["goals"])) else 1


def print_all(report: dict) -> None:
    print_report(report)
    for name, times in report["first_calls_ms"].items():
        print_line(
            f"first call per new count of tokens with context, {name}: " + ", ".join(f"{ms:.2f}" for ms in times) + " ms"
        )
    for name, said in report["peers_failed"].items():
        print_line(f"peer {name}:", coloured(said, "red"))
    print_line(report["upstream"] + "; theirs, not measured here")
    print_goals(report["goals"])


if __name__ == "__main__":
    sys.exit(main())
