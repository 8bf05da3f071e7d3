"""The goals of the kernels, judged from a report of scripts/bench/kernels.py: what is needed, what was got."""

from __future__ import annotations

from typing import Any

from attnfix.kernels import bench_works as works

FAST_LAUNCH_US, FAST_LOAD_MS, COMPILE_MS = 4.5, 5.0, 5.0
SHARE = 0.9
Report = dict[str, Any]


def judge(report: Report) -> list[dict]:
    """One entry per goal and row. `got` is None where a side was not measured: such a goal does not hold."""
    found = Found(report)
    return [*_merge(found), *_one_pass(found), *_fixup(found), *_base2(found), *_launch(report)]


class Found:
    """Rows by work, and how many times as long a peer takes as ours."""

    def __init__(self, report: Report) -> None:
        self.copy = report["copy_gb_s"]
        self.rows: dict[str, list[dict]] = {}
        for row in report["rows"]:
            if "us" in row:
                self.rows.setdefault(row["work"], []).append(row)

    def ours(self, work: works.Work) -> dict | None:
        return next((row for row in self.rows.get(work.name, ()) if row["ours"]), None)

    def peer(self, work: works.Work, part: str) -> dict | None:
        """The fastest one whose name has this part, and whose result is right."""
        fit = [r for r in self.rows.get(work.name, ()) if not r["ours"] and part in r["by"] and r["right"]]
        return min(fit, key=lambda row: row["us"], default=None)

    def ratio(self, goal: int, work: works.Work, part: str, least: float) -> dict:
        ours, peer = self.ours(work), self.peer(work, part)
        entry = _entry(goal, f"{work.name}: against {peer['by'] if peer else part}", f">= {least:g}x")
        if ours and peer:
            # What a kernel at the rate of the copy would get: where that is too little, the goal is out of reach.
            most = peer["us"] / (work.bytes / self.copy / 1e3)
            single = peer["single_us"] / ours["single_us"]
            got = peer["us"] / ours["us"]
            entry |= {
                "got": got,
                "shown": f"{got:.2f}x",
                "single": f"{single:.2f}x",
                "holds": got >= least,
                "at_copy_rate": most,
            }
            entry["margin"] = got / least - 1
        return entry


def _entry(goal: int, what: str, need: str) -> dict:
    return {"goal": goal, "what": what, "need": need, "got": None, "shown": "not measured", "single": "", "holds": False}


def _below(goal: int, what: str, got: float | None, most: float, unit: str) -> dict:
    entry = _entry(goal, what, f"<= {most:g} {unit}")
    if got is not None:
        entry |= {"got": got, "shown": f"{got:.2f} {unit}", "holds": got <= most, "margin": most / got - 1 if got else None}
    return entry


def _merge(found: Found) -> list[dict]:
    entries = []
    for work in works.MERGES:
        small = work.tokens * work.heads <= 2048 * 16
        entries.append(found.ratio(1, work, "CUDA", 1.4 if small else 1.0))
    for work in works.MERGES:
        if work.tokens * work.heads >= 8192 * 16:
            ours = found.ours(work)
            entry = _entry(1, f"{work.name}: share of the copy's rate", f">= {SHARE:.0%}")
            if ours:
                got = ours["gb_s"] / found.copy
                single = work.bytes / ours["single_us"] / 1e3 / found.copy
                entry |= {"got": got, "shown": f"{got:.1%}", "single": f"{single:.1%}", "holds": got >= SHARE}
                entry["margin"] = got / SHARE - 1
            entries.append(entry)
    return entries


def _one_pass(found: Found) -> list[dict]:
    return [
        found.ratio(2, work, part, least)
        for work in works.ONE_PASSES
        for part, least in (("sglang", 1.5), ("mask + merge", 5.0))
    ]


def _fixup(found: Found) -> list[dict]:
    entries = [found.ratio(3, work, "sglang", 40.0 if work is works.SKEWED else 1.0) for work in works.FIXUPS]
    skewed, alone = found.ours(works.SKEWED), found.ours(works.UNSKEWED)
    times = skewed["us"] / alone["us"] if skewed and alone else None
    return [*entries, _below(3, "the same empty rows beside 16,384 tokens and beside 16", times, 1.1, "x")]


def _base2(found: Found) -> list[dict]:
    """The noise: half of what lies between 10 % and 90 %, at least 1 %."""
    entries = []
    for work in works.BASES:
        rows = {row["by"]: row for row in found.rows.get(work.name, ())}
        e, two = (rows.get(f"attnfix, base {base}") for base in ("e", "2"))
        entry = _entry(4, f"{work.name}: against base e", "in the noise")
        if e and two:
            difference = two["us"] - e["us"]
            noise = max(0.01 * e["us"], (e["us_p90"] - e["us_p10"]) / 2)
            got = two["us"] / e["us"]
            entry |= {"got": got, "shown": f"{difference:+.2f} µs of {e['us']:.1f}", "holds": difference <= noise}
            entry |= {"single": f"{two['single_us'] - e['single_us']:+.2f} µs", "margin": None}
        entries.append(entry)
    return entries


def _launch(report: Report) -> list[dict]:
    hosts = {name: us for name, us in report["host_us"].items() if name.startswith("attnfix")}
    entries = [
        _below(5, f"host time of {name.removeprefix('attnfix ')}", us, FAST_LAUNCH_US, "µs") for name, us in hosts.items()
    ]
    entries.append(_below(5, "first launch of a process", report["first_launch_ms"].get("first"), FAST_LOAD_MS, "ms"))
    calls = report.get("first_calls_ms", {}).get("attnfix")
    entries.append(_below(5, "slowest first call with a new token count", max(calls) if calls else None, COMPILE_MS, "ms"))
    return entries
