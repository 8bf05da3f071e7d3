"""`attnfix bench`: what the kernels do on this machine's GPU, beside a plain copy."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from .errors import CliError
from .output import coloured, print_json, print_line, print_table

NAME = "bench"
BRIEF = "check and time the kernels on this machine's GPU"
HELP = "Check the kernels against float64 on this machine's GPU and time them beside a plain copy (about a minute)."
EXAMPLE = "attnfix bench --repeats 20"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=50, metavar="N", help="timed runs per row (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    if options.repeats < 1:
        raise CliError("--repeats must be at least 1", 2)
    if importlib.util.find_spec("torch") is None:
        raise CliError("bench needs torch, which attnfix never installs: run it in the environment of an engine")
    from attnfix.kernels import bench

    try:
        with shown(quiet=options.json) as progress:
            report = bench.run(options.repeats, progress=progress)
    except bench.BenchError as error:
        raise CliError(f"bench measures compiled kernels on a CUDA GPU: {error}") from error
    if options.json:
        print_json(report)
    else:
        print_report(report)
    return 0 if all_right(report) else 1


def all_right(report: dict[str, Any]) -> bool:
    """Whether every row of ours was measured and agrees with float64."""
    return all("us" in row and row["right"] for row in report["rows"] if row["ours"])


@contextmanager
def shown(quiet: bool) -> Iterator[Callable[[str], object]]:
    """Yields how to say what is being measured: on standard error, where that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    with console.status("") as status:
        yield status.update


def print_report(report: dict[str, Any]) -> None:
    """The table of a report of `attnfix.kernels.bench.run`, and what its rows could not say."""
    print_line(
        f"{report['device']}, torch {report['torch']}, CUDA {report['cuda']}, Python {report['python']}, bf16, head size 128"
    )
    print_table(
        "Inputs from memory, medians; single: one launch, L2 flushed; copy: share of a copy's rate; ours: times our time",
        ("work", "     µs", "10-90 %", " single", "TB/s", "copy", "ours"),
        _lines(report["rows"]),
    )
    by = ", ".join(f"{name} {rate:.0f}" for name, rate in report["copy_gb_s_by"].items())
    print_line(f"copy of 1 GiB: {report['copy_gb_s']:.0f} GB/s ({by})")
    print_line("host µs per launch: " + ", ".join(f"{name} {us:.1f}" for name, us in report["host_us"].items()))
    if first := report["first_launch_ms"]:
        print_line(
            f"first launch of a process, module load included: {first['first']:.1f} ms; second: {first['second']:.2f} ms"
        )
    for row in report["rows"]:
        if row["note"]:
            failed = not row.get("right", False)
            print_line(f"{row['work']}, {row['by']}:", coloured(row["note"], "red" if failed else "dim"))
    print_line(f"{len(report['rows'])} rows in {report['seconds']:.0f} s")


def _lines(rows: list[dict[str, Any]]) -> Iterator[tuple[Text, ...]]:
    seen, ours = None, None
    for row in rows:
        if row["work"] != seen:
            seen = row["work"]
            ours = next((r.get("us") for r in rows if r["work"] == seen and r["ours"]), None)
            yield tuple(Text(cell, style="bold") for cell in (f"{seen}, {_megabytes(row['bytes'])} MB", *[""] * 6))
        if "us" not in row:
            yield tuple(Text(cell) for cell in (f"  {row['by']}", "-", "", "-", "", "", "see below"))
            continue
        cells = (
            f"{row['us']:7.1f}",
            f"{row['us_p10']:.4g}-{row['us_p90']:.4g}",
            f"{row['single_us']:7.1f}",
            f"{row['gb_s'] / 1e3:.2f}",
            f"{row['share_of_copy']:4.0%}",
            f"{row['us'] / ours:.2f}x" if ours and row["us"] != ours else "",
        )
        style = "green" if row["ours"] and row["right"] else "" if row["right"] else "red"
        yield (Text(f"  {row['by']}", style=style), *(Text(cell) for cell in cells))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.{0 if size >= 1e8 else 1}f}"
