"""The table of docs/safety.md: what docs/evidence/robustness holds of the last run of each part."""

from __future__ import annotations

import json
from pathlib import Path

EVIDENCE = Path(__file__).resolve().parents[2] / "docs/evidence/robustness"
#: Parts in the order of the table; each is `tests/robustness/<name>.py`
PARTS: tuple[str, ...] = (
    "mutants",
    "faults",
    "threads_and_forks",
    "other_patchers",
    "interpreters",
    "cost",
    "security",
    "parsers",
    "kernel_arguments",
    "engine_tests",
)


def table() -> str:
    """One row for each thing tried, in the order of the parts."""
    lines = ["| part | what was tried | how often | wrong | figures, and what could not be run |", "|---|---|---|---|---|"]
    for part in PARTS:
        path = EVIDENCE / f"{part}.json"
        if not path.is_file():
            lines.append(f"| {part} | not run yet | | | |")
            continue
        for row in json.loads(path.read_text())["rows"]:
            figures = [f"{name} {value}" for name, value in row["figures"].items()]
            notes = "; ".join([*figures, *(f"not run: {sentence}" for sentence in row["not_run"])])
            lines.append(f"| {part} | {row['what']} | {row['tried']:,} | {len(row['wrong'])} | {notes} |")
    return "\n".join(lines)
