"""What a fix costs that corrects in nearly every step: rows of docs/seen-on-a-gpu.md and of the fixes' pages.

From the cases "firing …" of docs/evidence/e2e-*.json, which scripts/serve/e2e_firing.py makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packaging.version import Version

from scripts.pages.gpu_runs import each_round, short_gpu
from scripts.pages.served_table import EVIDENCE, FIRING, runs


def table() -> str:
    """One row for each fix and release, the newest first."""
    found = sorted(_cases(), key=lambda case: (case["engine"], Version(case["release"])), reverse=True)
    if not found:
        return "No row was measured yet."
    header = (
        "fix", "engine", "GPU", "requests", "stock, tokens/s", "patched", "first token", "corrections", "checks that failed",
    )  # fmt: skip
    rows = [header, ("---",) * len(header), *map(_row, found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def of(fix: str) -> list[str]:
    """A sentence for each valid row of that fix, the newest release first."""
    cases = [case for case in _cases() if case["fix"] == fix and "ratio" in case]
    cases.sort(key=lambda case: Version(case["release"]), reverse=True)
    return [
        f"{case['engine']} {case['release']} ({short_gpu(case['gpu'])}), {case['workload']}: {_times(case, 'tokens_per_s')} "
        f"stock's tokens/s, {_times(case, 'first_token_s')} its time to the first token"
        for case in cases
    ]


def _cases() -> Iterator[dict[str, Any]]:
    for found in runs(EVIDENCE):
        about = {name: found[name] for name in ("engine", "release", "gpu", "file")}
        yield from (case | about for name, case in found["cases"].items() if name.startswith(FIRING))


def _row(case: dict[str, Any]) -> tuple[str, ...]:
    valid = "ratio" in case
    return (
        f"[`{case['fix']}`](fixes/{case['fix']}.md)",
        f"[{case['engine']} {case['release']}](evidence/{case['file']})",
        f"{case['gpus']} {short_gpu(case['gpu'])}" if case["gpus"] > 1 else short_gpu(case["gpu"]),
        case["workload"],
        f"{case['tokens_per_s']['stock']:.0f}" if valid else "-",
        f"{_times(case, 'tokens_per_s')} the tokens/s" if valid else "no comparison",
        f"{_times(case, 'first_token_s')} the time" if valid else "-",
        _corrections(case),
        "; ".join(case["failures"]) or "none",
    )


def _times(case: dict[str, Any], what: str) -> str:
    ratio = case["ratio"][what]
    return f"{ratio['ratio']:.3f} ({ratio['low']:.3f}-{ratio['high']:.3f}) times"


def _corrections(case: dict[str, Any]) -> str:
    """The least and the most in a round of one server; where there were none in any, they came when the server started."""
    if "corrections" not in case:
        return "-"
    counted = [count for rounds in each_round(case, case["fix"]).values() for count in rounds]
    if not counted:
        return "-"
    if not any(counted):
        return "at start" if any(told[-1].get(case["fix"]) for told in case["corrections"].values()) else "none"
    return f"{min(counted)}-{max(counted)} a round" if min(counted) < max(counted) else f"{counted[0]} a round"
