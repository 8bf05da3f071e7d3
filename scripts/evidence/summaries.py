"""Summaries of GPU runs: docs/evidence/runs/*.json, at most 4 kB each, which the pages show.

A summary holds the figures, the machine, the versions, the commands and the commit. `of` makes it of a record that the
end-to-end scripts have written; other summaries are written by hand and have the same head. Keys of a summary:

    raw       names of the records in the archive        what      for other runs than end-to-end ones: one sentence
    gpu       the GPU's name                             engine, release, versions, dates, commit, commands
    cases     case → {stock, attnfix, on, emulated, failed}; on: GPUs and ranks, where it is not one of each
    served    kind of model → how far an answer moved; stands, corrected, failed
    firing    fix → {requests, stock, tokens, first, corrections, failed}; tokens, first: patched over stock, [ratio, low, high]
    corrected fixes that corrected behind real kernels
    figures   of other runs
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

RUNS = Path(__file__).resolve().parents[2] / "docs/evidence/runs"
#: A summary is no longer than this, in bytes
LONGEST = 4096
KINDS = ("mla", "dense", "windows", "hybrid")
#: Prefixes of cases of gpu_probe, served and e2e_firing
PROBE, SERVED, FIRING = "probe ", "served ", "firing "
_VERSIONS = ("attnfix", "torch", "cuda", "driver", "python", "triton", "transformers", "flashinfer-python")
#: States of a fix that is at work
_STANDS = ("installed", "effective")


def read(folder: Path = RUNS) -> list[dict[str, Any]]:
    """All summaries of that folder, each with its name as "file"."""
    return [json.loads(path.read_text()) | {"file": path.name} for path in sorted(folder.glob("*.json"))]


def text(summary: dict[str, Any]) -> str:
    """A summary as its file holds it: one line for each entry, and for each case.

    Raises ValueError where it is longer than LONGEST.
    """
    lines = []
    for name, value in summary.items():
        if name in ("cases", "firing", "figures") and value:
            inner = ",\n".join(f"  {json.dumps(key)}: {_line(entry)}" for key, entry in value.items())
            lines.append(f" {json.dumps(name)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(name)}: {_line(value)}")
    written = "{\n" + ",\n".join(lines) + "\n}\n"
    if len(written.encode()) > LONGEST:
        raise ValueError(f"{summary['raw']}: a summary of {len(written.encode())} bytes, {LONGEST} at most")
    return written


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def of(found: dict[str, Any], raw: str, commit: str) -> dict[str, Any]:
    """The summary of a record of the end-to-end scripts. raw: its name in the archive; commit: kept with it."""
    cases = found["cases"]
    plain = {name: case for name, case in cases.items() if not name.startswith((SERVED, FIRING))}
    served = {name.removeprefix(SERVED): case for name, case in cases.items() if name.startswith(SERVED)}
    firing = {case["fix"]: case for name, case in cases.items() if name.startswith(FIRING)}
    dates = sorted({case["date"] for case in cases.values() if "date" in case})
    told = {
        "raw": [raw],
        "gpu": found["gpu"],
        "engine": found["engine"],
        "release": found["release"],
        "versions": {name: found[name] for name in _VERSIONS if found.get(name)},
        "dates": " … ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "",
        "commit": commit,
        "commands": list(dict.fromkeys(_command(name, case) for name, case in cases.items())),
        "cases": {name: _case(name, case) for name, case in sorted(plain.items())},
        "served": _served(served),
        "firing": {fix: _firing(case, fix) for fix, case in firing.items()},
        "corrected": sorted(_corrected(cases)),
    }
    return {name: value for name, value in told.items() if value}


def _command(name: str, case: dict[str, Any]) -> str:
    """How a case is repeated, with CASE, KIND or FIX in the place of its own name."""
    told = case.get("command") or f"python -m scripts.serve.gpu_probe --case {name.removeprefix(PROBE)}"
    for option, word in (("case", "CASE"), ("models?", "KIND"), ("fix", "FIX")):
        told = re.sub(rf"(--{option}) (?!served\b)\S+", rf"\1 {word}", told)
    told = re.sub(r"\[[^]]*\]", "[CASE]", told)
    return told.replace("python scripts/", "python -m scripts.serve.").replace(".py ", " ")


def _case(name: str, case: dict[str, Any]) -> dict[str, Any]:
    stock, patched = _seen(name, case)
    told: dict[str, Any] = {"stock": stock, "attnfix": patched, "on": _shared(case)}
    told |= {"emulated": "emulated" in case, "failed": _failed(name.split()[-1], case.get("failures", []))}
    return {key: value for key, value in told.items() if value not in ("", "-", False, [])}


def _failed(name: str, failures: list[str]) -> list[str]:
    """Failures without the name of their case. An interval that begins or ends at the wrong place stands among the figures."""
    short = (failure.removeprefix(f"{name}: ").removeprefix(f"{name}, ") for failure in failures)
    return list(dict.fromkeys(re.sub(r", patched / stock: the interval (begins|ends) at .*", "", each) for each in short))


def _shared(case: dict[str, Any]) -> str:
    """GPUs and ranks of a case, where they are not one. A case that does not tell its GPUs had one for each rank."""
    ranks = case.get("settings", {}).get("tensor_parallel_size", 1)
    gpus = case.get("gpus", ranks)
    return f"{gpus} GPUs" if gpus > 1 else "2 ranks on one GPU" if ranks > gpus else ""


# A model of each kind, with any release


def _served(cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if not cases:
        return {}
    rows = [pair for case in cases.values() for pair in rows_of(case)]
    failed: dict[str, list[str]] = {}  # a failure of several models stands once
    for kind, sentence in (one.split(": ", 1) for case in cases.values() for one in case["failures"]):
        failed.setdefault(sentence, []).append(kind)
    return {
        **{kind: _moved(cases[kind]) for kind in KINDS if kind in cases},
        "stands": len({fix for fix, row in rows if row["state"] in _STANDS}),
        "corrected": sorted({fix for fix, row in rows if row["corrections"]}),
        "failed": [f"{', '.join(kinds)}: {sentence}" for sentence, kinds in failed.items()],
    }


def _moved(case: dict[str, Any]) -> str:
    """How far a cached half or other requests move an answer, at most: stock → patched."""
    sides = case["sides"]
    told = [_answers(sides[name]) for name in ("stock", "patched") if name in sides]
    if set(told) == {"ended"}:
        said = sides["patched"]["said"] or sides["patched"]["ended"]
        return f"not served: {re.split(r'[.:] ', said.removeprefix('start: '))[0]}"
    return " → ".join(told)


def _answers(side: dict[str, Any]) -> str:
    if "ended" in side:
        return "ended"
    moved = [seen["difference"] for what, seen in side["compared"].items() if what.startswith("cold and ")]
    return "not finite" if None in moved else f"{max(moved):.2g}"


def _corrected(cases: dict[str, dict[str, Any]]) -> set[str]:
    """Fixes that corrected in some process of a case with real kernels alone. A case whose stock side was right has not
    `shown` anything."""
    real = [case for case in cases.values() if "emulated" not in case and case.get("shown", True)]
    return {fix for case in real for fix, row in rows_of(case) if row.get("corrections")}


def rows_of(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of `attnfix status` that lie anywhere in a case."""
    if isinstance(value, list):
        for entry in value:
            yield from rows_of(entry)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if name == "fixes" and isinstance(entry, dict):
                yield from entry.items()
            else:
                yield from rows_of(entry)


# A fix that corrects in nearly every step


def _firing(case: dict[str, Any], fix: str) -> dict[str, Any]:
    told = {"requests": case["workload"]} | ({"on": f"{case['gpus']} GPUs"} if case["gpus"] > 1 else {})
    if "ratio" in case:
        told |= {"stock": f"{case['tokens_per_s']['stock']:.0f} tokens/s"}
        told |= {key: _interval(case["ratio"][name]) for key, name in (("tokens", "tokens_per_s"), ("first", "first_token_s"))}
    told |= {"corrections": _corrections(case, fix), "failed": _failed(fix, case["failures"])}
    return {key: value for key, value in told.items() if value}


def _interval(ratio: dict[str, float]) -> list[float]:
    return [round(ratio[name], 3) for name in ("ratio", "low", "high")]


def _corrections(case: dict[str, Any], fix: str) -> str:
    """The least and the most in a round of one server; where there were none in any, they came when the server started."""
    if "corrections" not in case:
        return ""
    counted = [count for rounds in each_round(case, fix).values() for count in rounds]
    if not counted:
        return ""
    if not any(counted):
        return "at start" if any(told[-1].get(fix) for told in case["corrections"].values()) else "none"
    return f"{min(counted)}-{max(counted)} a round" if min(counted) < max(counted) else f"{counted[0]} a round"


def each_round(seen: dict[str, Any], fix: str) -> dict[str, list[int]]:
    """{patched server: how often the fix corrected in each round}."""
    so_far = {name: [one.get(fix, 0) for one in told] for name, told in seen["corrections"].items()}
    return {name: [after - before for before, after in itertools.pairwise(told)] for name, told in so_far.items()}


# Figures of a case


def _seen(name: str, case: dict[str, Any]) -> tuple[str, str]:
    """Figures of stock and of patched, as words."""
    if "told" in case:
        return case["told"]["stock"], case["told"]["patched"]
    kind = name.partition(" ")[0]
    if kind in _WHOLE:
        return _WHOLE[kind](case)
    sides, of = case["sides"], _BY_SIDE.get(kind, _difference)
    return of(sides["stock"]), of(sides["patched"])


def _of_no_harm(case: dict[str, Any]) -> tuple[str, str]:
    if "invalid" in case:  # what makes it so is among the checks that failed
        return "-", "no comparison"
    speed, cpu = case["ratio"]["tokens_per_s"], case["ratio"]["cpu_s"]
    others = {name.split()[1] for name, rounds in case["rounds_with_other_tokens"].items() if rounds}
    tokens = {0: "the same tokens", 1: "other tokens"}.get(len(others), "other tokens, stock too")
    return f"{case['tokens_per_s']['stock']:.0f} tokens/s", f"{tokens}, {_times(speed)} tokens/s, {_times(cpu)} CPU seconds"


def _of_page(case: dict[str, Any]) -> tuple[str, str]:
    counted = sum(value for name, value in case["page"]["after"].items() if name.startswith("attnfix_corrections_total"))
    return "-", f"{len(case['processes'])} processes with records, {counted:.0f} corrections on the page"


def _of_probes(case: dict[str, Any]) -> tuple[str, str]:
    return _of_probe(case["sides"].get("stock")), _of_probe(case["sides"].get("patched"))


def _of_windows(case: dict[str, Any], name: str = "Triton", beside: str = "triton") -> tuple[str, str]:
    sides = case["sides"]
    speed = f", {_times(case['speed']['tokens per second'])} prefill tokens/s" if "speed" in case else ""
    return _distance(sides["stock"]), f"{_distance(sides['patched'])} ({name} {_distance(sides[beside])}){speed}"


def _of_verification(case: dict[str, Any]) -> tuple[str, str]:
    """Greedy tokens as the reference has them before the first other one, on average."""
    told = {}
    for name, side in case["sides"].items():
        told[name] = f"{fmean(side['equal tokens']):.1f} of {case['new']} tokens"
    return told["stock"], f"{told['patched']} (without speculation {told['without speculation']})"


def _of_decode(case: dict[str, Any]) -> tuple[str, str]:
    """The distance of the steps of an answer from what is right, of the answer that came out furthest."""
    worst = {name: max(one["decode"] for one in side["each"]) for name, side in case["sides"].items()}
    return f"{worst['stock']:.2g}", f"{worst['patched']:.2g} (fa3 {worst['fa3']:.2g})"


def _of_drafts(case: dict[str, Any]) -> tuple[str, str]:
    """Accepted tokens of a step behind short prompts, on each backend, and on the one that has not the bug."""
    told: dict[str, list[str]] = {"stock": [], "patched": []}
    for name, one in case["sides"].items():
        side, _, kind = name.partition(", ")
        if side in told:
            each = one.get("accepted", {}).get("short")
            told[side].append(f"{kind} {fmean(each):.2f}" if each else f"{kind} not served: {one['said'] or one['ended']}")
    right = fmean(case["sides"]["fa3"]["accepted"]["short"])
    return "; ".join(told["stock"]), f"{'; '.join(told['patched'])} (fa3 {right:.2f} of {case['drafts']})"


def _of_kernel(case: dict[str, Any]) -> tuple[str, str]:
    """Errors with other slots, and with none, behind a page table."""

    def told(side: str) -> str:
        both = (case["sides"][f"{side}, {words}"] for words in ("slots", "none"))
        return "; ".join(one["error"] if "error" in one else f"{one['scenario']['error']:.2g}" for one in both)

    return told("stock"), told("patched")


def _distance(side: dict[str, Any]) -> str:
    """Root mean square of a log-probability's difference from what is right, of the prompt that came out furthest from it."""
    return f"{max(one[how] for one in side['each'] for how in ('cold', 'cached')):.2g}"


def _of_probe(side: dict[str, Any] | None) -> str:
    """Each verdict, how often it was said, and how far this server's answers move by themselves."""
    if side is None:
        return "-"
    if not side["runs"]:
        return f"the server did not start: {side['error']}"
    said = Counter(run.get("verdict") or "no verdict" for run in side["runs"])
    floors = [run["floor"] for run in side["runs"] if "floor" in run]
    told = ", ".join(f"{verdict} {count} of {len(side['runs'])}" for verdict, count in said.items())
    return f"{told} (floor {max(floors):.2g})" if floors else told


def _of_turns(side: dict[str, Any]) -> str:
    """Turns that found an earlier one in the cache: how many were answered wrongly, and the largest difference."""
    return f"{side['red']} of {side['hits']} turns wrong, at most {side['worst']:.2g} (none cached: {side['floor']:.2g})"


def _of_parts(side: dict[str, Any]) -> str:
    """`_distance` of prefills and of decodes."""
    worst = {how: max(one[how] for one in side["each"]) for how in ("prefill", "decode")}
    return ", ".join(f"{how} {distance:.2g}" for how, distance in worst.items())


def _times(ratio: dict[str, float]) -> str:
    return f"{ratio['ratio']:.3f} ({ratio['low']:.3f}-{ratio['high']:.3f}) times the"


def _difference(side: dict[str, Any]) -> str:
    """The largest difference of a log-probability among the top 20, over everything that was compared. What was not finite is
    null in the file."""
    if "ended" in side:
        return f"the engine ended: {side['said'] or side['ended']}".split(". ")[0]
    seen = side["compared"].values()
    differences = [one["difference"] for one in seen]
    largest = "not finite" if None in differences else f"{max(differences):.2g}"
    return f"{largest}, {min(one['in_common'] for one in seen)} of the top 20"


#: By the first word of a case's name: what is told of the whole case, or of each side; of others, the largest difference
_WHOLE: dict[str, Callable[[dict[str, Any]], tuple[str, str]]] = {
    "no-harm": _of_no_harm, "metrics": _of_page, "probe": _of_probes, "context-wall-kernel": _of_kernel, "windows": _of_windows,
    "fp8-prefix": partial(_of_windows, name="paged-only mode", beside="stock, paged"), "verify": _of_verification,
    "window-decode": _of_decode, "draft-lengths": _of_drafts,
}  # fmt: skip
_BY_SIDE = {
    **dict.fromkeys(("prefix-cache", "prefix-cache-mamba2", "mamba2"), _of_turns),
    **dict.fromkeys(("q-scale", "q-scale-mixed"), _of_parts),
}


def short_gpu(name: str) -> str:
    """H200, of "NVIDIA H200"; of a name without such a word, the name as a file's may be."""
    short = re.search(r"\b[A-Z]+\d+\w*", name)
    return short.group() if short else re.sub(r"\W+", "-", name)
