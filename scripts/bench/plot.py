"""Draws a report of scripts/bench/kernels.py: rate against size, ours and peers, with the copy.

    python -m scripts.bench.plot kernels-h200.json docs/kernels-h200.svg

Needs matplotlib (`pip install "attnfix[plot]"`). One picture for light and dark pages: no background, mid-tone text.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

INK, GRID = "#7d8590", "#7d859040"
#: part of a candidate's name -> colour, marker; the first that fits
LOOKS = (
    ("attnfix", "#e5632a", "o"),
    ("sglang", "#1a9c7a", "D"),
    ("mask", "#b3549e", "v"),
    ("CUDA", "#3f7fd6", "s"),
    ("Triton", "#a57c1b", "^"),
)
PANELS = (("merge", "Merge two partial results"), ("one pass", "Merge, half of the requests empty"))


def curves(report: dict, family: str) -> dict[str, list[tuple[float, float]]]:
    """(bytes, TB/s) by candidate, by size; the merge with half its tokens without context is no point of the curve."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in report["rows"]:
        if row["family"] == family and "us" in row and "half without" not in row["work"]:
            # A graph copies more than a GiB by other means than a kernel, and slower: a copy may show its best.
            best = max(row["gb_s"], row["bytes"] / row["single_us"] / 1e3) if family == "copy" else row["gb_s"]
            found.setdefault(row["by"], []).append((row["bytes"], best / 1e3))
    return {name: sorted(points) for name, points in found.items()}


def draw(report: dict, target: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    for name in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"):
        plt.rcParams[name] = INK
    plt.rcParams["axes.edgecolor"] = GRID
    plt.rcParams["font.size"] = 11
    plt.rcParams["svg.hashsalt"] = "attnfix"  # ids that are the same in each run
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, width_ratios=(3, 2))
    copy = report["copy_gb_s"] / 1e3
    for axes, (family, title) in zip(panels, PANELS, strict=True):
        axes.axhline(copy, color=INK, linewidth=1, linestyle=(0, (5, 3)))
        if family == "merge":
            axes.plot(*_mb(curves(report, "copy").get("torch copy", [])), color=INK, linewidth=1, linestyle=":")
        for name, points in curves(report, family).items():
            _, colour, marker = next((look for look in LOOKS if look[0] in name), ("", INK, "x"))
            bold = 2.4 if name == "attnfix" else 1.6
            axes.plot(*_mb(points), color=colour, marker=marker, markersize=6, linewidth=bold, label=name)
        axes.set(xscale="log", title=title, xlabel="MB that must move", ylim=(0, copy * 1.12))
        axes.title.set_color(INK)
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panels[0].set_ylabel("TB/s")
    panels[0].annotate(
        f"copy of 1 GiB: {copy:.2f} TB/s", (0.01, copy), xycoords=("axes fraction", "data"), va="bottom", fontsize=9.5
    )
    figure.text(0.99, 0.965, f"{report['device']}, bf16, head size 128; dotted: copy of as much", ha="right", fontsize=9)
    lines = {line.get_label(): line for axes in panels for line in axes.get_legend_handles_labels()[0]}
    figure.legend(lines.values(), lines.keys(), loc="lower center", ncols=5, frameon=False, fontsize=9.5, labelcolor=INK)
    figure.tight_layout(rect=(0, 0.07, 1, 0.97))
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)


def _mb(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [size / 1e6 for size, _ in points], [rate for _, rate in points]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("svg", type=Path)
    args = parser.parse_args()
    draw(json.loads(args.report.read_text()), args.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
