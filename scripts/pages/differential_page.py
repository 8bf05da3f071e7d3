"""The tables of docs/differential.md: what docs/evidence/differential holds of the runs, and what the spaces do not reach."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from tests.differential.space import version

EVIDENCE = Path(__file__).resolve().parents[2] / "docs/evidence/differential"
_NEVER = 6  # functions that a cell names
_PARTS = Path(__file__).resolve().parents[2] / "tests/differential"
_COUNTS = ("configurations", "steps", "harm", "missed", "find", "corrected", "refused", "band")


def _runs() -> list[dict[str, Any]]:
    every = (json.loads(path.read_text()) for path in sorted(EVIDENCE.glob("*.json")))
    return [found for found in every if "configurations" in found]


def table() -> str:
    """One row for each release and space: runs of the same one add up, those of others do not."""
    columns = (
        "release", "space", "configurations", "of eight steps or more", "steps", "pairs of settings", "harm", "missed", "finds",
        "corrected", "refused", "in the band",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for found in _runs():
        groups.setdefault((found["engine"], found["release"], found["space"]), []).append(found)
    for (engine, release, drawn), runs in groups.items():
        sums = {name: f"{sum(one[name] for one in runs):,}" for name in _COUNTS}
        long = f"{sum(one['long'] for one in runs):,}" if all("long" in one for one in runs) else "not counted"
        covered, possible = max(one["pairs"] for one in runs)  # which they were is not kept: together these at least
        at_least = "at least " if len(runs) > 1 and covered < possible else ""
        cells = (
            f"{engine} {release}", "now" if drawn == version(_space(engine).SPACE) else "earlier", sums["configurations"], long,
            sums["steps"], f"{at_least}{covered:,} of {possible:,}", *(sums[name] for name in _COUNTS[2:]),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def seen() -> str:
    """The bugs of fixes that runs came across, and how soon."""
    columns = ("fix", "release", "seeds", "configurations until stock was seen wrong", "seconds, both sides")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for found in _runs():
        seeds = ", ".join(map(str, found["seeds"]))
        for fix, first in found["first_by_fix"].items():
            lines.append(f"| {fix} | {found['release']} | {seeds} | {first['configurations']} | {first['seconds']} |")
    return "\n".join(lines)


def candidates() -> str:
    """Of each bug that was listed before: the run in which it was first seen, all settings drawn if there is such a one, or the
    longest one in which it was not; or why the space does not reach it."""
    every = json.loads((EVIDENCE / "candidates.json").read_text())["candidates"]
    recall = json.loads((EVIDENCE / "recall.json").read_text())
    lines = ["| bug | release | settings | seed | configurations | seconds, both sides | seen |", "|---" * 7 + "|"]
    seen = 0
    reached = [one for one in every if "release" in one]
    for one in reached:
        runs = recall.get(one["name"].split(".")[0], {}).get(one["name"], [])
        runs = [run for run in runs if not run["how"].startswith("a case")]  # which somebody chose who knew the bug
        ranked = sorted(
            runs, key=lambda run: (not run["seen"], run["how"] != "drawn", "seconds" not in run, -run.get("seconds", 0))
        )
        run = ranked[0] if ranked else {"release": one["release"], "how": "not run", "seen": False}
        seen += run["seen"]
        figures = [f"{run[name]:,}" if name in run else "" for name in ("configurations", "seconds")]
        cells = (
            one["name"].replace(".", " ", 1),
            run["release"],
            run["how"],
            run.get("seed", ""),
            *figures,
            "yes" if run["seen"] else "no",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    others = "\n".join(f"- {one['name'].replace('.', ' ', 1)}: {one['not reached']}." for one in every if "release" not in one)
    share = (
        f"Seen: {seen} of the {len(reached)} that the space reaches. The other {len(every) - len(reached)} it does not reach:"
    )
    return "\n".join(lines) + f"\n\n{share}\n\n{others}"


def stand_ins() -> str:
    """Each entry point whose launches were recorded, and what its real kernel made of them."""
    columns = ("release", "entry point", "launches", "agree", "differ", "refused by the kernel", "not run", "worst, of", "GPU")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for path in sorted((_PARTS / "recorded").glob("*.jsonl")):
        counts: dict[str, int] = {}
        about, *launches = map(json.loads, path.read_text().splitlines())
        for launch in launches:
            counts[launch["entry"]] = counts.get(launch["entry"], 0) + 1
        evidence = EVIDENCE / "stand-ins" / f"{path.stem}.json"
        found = json.loads(evidence.read_text()) if evidence.exists() else {"entry_points": {}, "machine": {}}
        for name, count in counts.items():
            cells = [f"{about['about']['engine']} {about['about']['release']}", f"`{name}`"]
            one = found["entry_points"].get(name)
            told = _replayed(one, found["machine"].get("gpu", "")) if one else ["not run yet", *[""] * 5]
            cells += [str(count), *told]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _replayed(one: dict[str, Any], gpu: str) -> list[str]:
    worst = "" if one["worst"] is None else f"{one['worst']:.2g}, {one['of']:.2g}"
    wrong = one["differs"] + one["died"] + one["hung"]
    counts = (one["agrees"] + one["both refuse"], wrong, one["refused"], one["absent"] + one["not run"])
    return [*map(str, counts), worst, gpu]


def branches() -> str:
    """Of each release whose branches were measured, and of the run with most cases: files, and how many of their branches cases
    entered."""
    lines = ["| release | cases | file | branches | entered | functions never entered |", "|---|---|---|---|---|---|"]
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(EVIDENCE.glob("*.json")):
        found = json.loads(path.read_text())
        if "branches" in found:
            release = found["engine"], found["release"]
            runs[release] = max(runs.get(release, found), found, key=lambda run: int(run["branches"]["cases"]))
    for found in runs.values():
        for name, one in found["branches"]["files"].items():
            never = ", ".join(f"`{function}`" for function in one["never"][:_NEVER])
            if len(one["never"]) > _NEVER:
                never += f" and {len(one['never']) - _NEVER} more"
            cells = (
                f"{found['engine']} {found['release']}", found["branches"]["cases"], name, one["branches"],
                one["entered"], never,
            )  # fmt: skip
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def axes() -> str:
    """What is drawn."""
    lines = ["| engine | setting | values |", "|---|---|---|"]
    for engine in _engines():
        for name, values in _space(engine).SPACE.axes.items():
            lines.append(f"| {engine} | `{name}` | {', '.join(f'`{value}`' for value in values)} |")
    return "\n".join(lines)


def not_reached() -> str:
    """Fixes that no settings of the space reach."""
    lines = ["| fix | why the space does not reach it |", "|---|---|"]
    for engine in _engines():
        for fix, settings in getattr(_space(engine), "FIXES", {}).items():
            if isinstance(settings, str):
                lines.append(f"| {fix} | {settings} |")
    return "\n".join(lines)


def _engines() -> list[str]:
    return sorted(path.parent.name for path in _PARTS.glob("*/space.py"))


def _space(engine: str) -> Any:
    return importlib.import_module(f"tests.differential.{engine}.space")
