"""The tables of docs/safety.md: totals of docs/evidence/robustness, the last run of each part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EVIDENCE = Path(__file__).resolve().parents[2] / "docs/evidence/robustness"
#: Parts in the order of the table, each of which is `tests/robustness/<name>.py`, and what they try
PARTS: dict[str, str] = {
    "mutants": "changed code of witnesses is unknown source, rewritten code is recognised, proofs hold beside changed callees",
    "faults": "exceptions, interrupts and kills at each line of hook, gate, arming, records and kernel loading; broken disks, "
    "broken ledgers; an engine that is upgraded under a live process",
    "threads_and_forks": "64 threads that import and activate at once; spawned and forked children",
    "other_patchers": "sglang's HookRegistry, a second attnfix, OpenTelemetry, ddtrace, in each order",
    "interpreters": "Python 3.10 to 3.13, each beside wrapt 1.16, 1.17 and 2.5; names of torch in other versions of it",
    "cost": "CPU time of a start, an import, and a call that needs no correction",
    "security": "files of others in every folder that attnfix reads, archives, pickles, bandit, pip-audit, equal builds",
    "parsers": "fuzzed ledgers, records, switches and launch commands",
    "kernel_arguments": "hostile shapes, strides, dtypes, devices, aliases and contents for both kernels",
    "engine_tests": "tests that the engines publish, stock and patched",
}


def table() -> str:
    """One row for each part."""
    lines = ["| part | tries | how often | wrong | not run |", "|---|---|---|---|---|"]
    for part, tries in PARTS.items():
        if rows := _rows(part):
            tried, wrong = sum(row["tried"] for row in rows), sum(len(row["wrong"]) for row in rows)
            lacking = "; ".join(dict.fromkeys(sentence for row in rows for sentence in row["not_run"]))
            lines.append(f"| {part} | {tries} | {tried:,} | {wrong} | {lacking} |")
        else:
            lines.append(f"| {part} | {tries} | not run yet | | |")
    return "\n".join(lines)


def costs() -> str:
    """What the part `cost` measured above its aim; one row for each aim."""
    above: dict[str, list[str]] = {}
    for row in _rows("cost"):
        found = row["figures"]["above it"]
        measured = "a call" if " a bare wrapper" in row["figures"]["aim"] else row["what"]
        above.setdefault(f"{measured}: {row['figures']['aim']}", []).extend([] if found == "none" else found.split(", "))
    lines = ["| measured, and its aim | above the aim |", "|---|---|"]
    return "\n".join(lines + [f"| {aim} | {', '.join(found) or 'none'} |" for aim, found in above.items()])


def _rows(part: str) -> list[dict[str, Any]]:
    path = EVIDENCE / f"{part}.json"
    return json.loads(path.read_text())["rows"] if path.is_file() else []
