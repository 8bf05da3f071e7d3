"""The tables of docs/differential.md: what docs/evidence/differential holds of the runs, and what the spaces do not reach."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

EVIDENCE = Path(__file__).resolve().parents[2] / "docs/evidence/differential"
_NEVER = 6  # functions that a cell names
_PARTS = Path(__file__).resolve().parents[2] / "tests/differential"


def table() -> str:
    """One row for each release that was run."""
    lines = [
        "| release | configurations | steps | pairs of settings | harm | missed | finds | corrected | refused | in the band |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted(EVIDENCE.glob("*.json")):
        found = json.loads(path.read_text())
        if "configurations" in found:
            covered, possible = found["pairs"]
            cells = (
                f"{found['engine']} {found['release']}", f"{found['configurations']:,}", f"{found['steps']:,}",
                f"{covered:,} of {possible:,}", found["harm"], found["missed"], found["find"], found["corrected"],
                found["refused"], found["band"],
            )  # fmt: skip
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def seen() -> str:
    """The bugs of fixes that runs came across, and how soon."""
    lines = ["| fix | release | configurations until stock was seen wrong | seconds, both sides |", "|---|---|---|---|"]
    for path in sorted(EVIDENCE.glob("*.json")):
        found = json.loads(path.read_text())
        for fix, first in found.get("first_by_fix", {}).items():
            lines.append(f"| {fix} | {found['release']} | {first['configurations']} | {first['seconds']} |")
    return "\n".join(lines)


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
    """Of each release whose branches were measured: files, and how many of their branches cases entered."""
    lines = ["| release | cases | file | branches | entered | functions never entered |", "|---|---|---|---|---|---|"]
    for path in sorted(EVIDENCE.glob("*.json")):
        found = json.loads(path.read_text())
        for name, one in found.get("branches", {}).get("files", {}).items():
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
