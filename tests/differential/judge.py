"""What the answers of both sides mean.

harm       patched is wrong, raises, hangs or dies where stock does not; or it differs though no correction was counted; or a
           fix that is needed does not stand, so that the case says nothing of it
missed     a correction was counted before the step that is wrong, and it is wrong on both sides
find       stock is wrong, and no correction was counted up to there: nobody speaks of it; or a bug is there that was reported
           and that no fix corrects, and the case is right without that bug (`run.Sides.judge`)
corrected  stock is wrong, patched is right
refused    the engine refuses the settings on both sides
ok         both are right

A fix is `effective` as soon as its target is called: that says nothing of one case. So a wrong result counts as missed where a
correction was counted before; which fixes were effective is in the record of a find, for whoever looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .protocol import Answer, Known

HARM, MISSED, FIND, CORRECTED, REFUSED, OK = KINDS = ("harm", "missed", "find", "corrected", "refused", "ok")
_WHOLE = ("done", "refused", "raised")  # ends that do not depend on how busy the machine is
#: With these the run fails
FAILING = frozenset({HARM, MISSED})


class Verdict(NamedTuple):
    """kind: of KINDS. why: in words. sign: what makes two finds the same one: where it went wrong, without numbers.
    in_band: whether an error lay between right and wrong. known: what may be to blame, if both sides are wrong."""

    kind: str
    why: str = ""
    sign: str = ""
    in_band: bool = False
    known: Known | None = None


class Fault(NamedTuple):
    """wrong: the name of a layer, or an error's type and message. kinds, error: of the step and of its worst row, where a layer
    is wrong."""

    step: int
    what: str
    sign: str
    wrong: str
    kinds: tuple[str, ...] = ()
    error: float = 0.0


def judge(
    stock: Answer, patched: Answer,
    known: Callable[[str, Sequence[str], float], Known | None] = lambda wrong, kinds, error: None,
) -> Verdict:  # fmt: skip
    """known(what is first wrong, kinds of the step, error): a bug of these settings that no fix corrects (`protocol.Space`)."""
    band = any(_in_band(answer) for answer in (stock, patched) if not fault(answer))
    if stock["ended"] == "refused" and patched["ended"] == "refused":
        return Verdict(REFUSED, stock["why"], stock["why"].split(":")[0])
    for fix, state in patched.get("missing", {}).items():
        return Verdict(HARM, f"{fix} is needed and does not stand: {state}", f"{fix} {state}", band)
    ours, theirs = fault(patched), fault(stock)
    if ours and (not theirs or ours.step < theirs.step):
        return Verdict(HARM, f"patched only: {ours.what}", ours.sign, band)
    if stock["ended"] in _WHOLE and (other := difference(stock, patched)):
        return Verdict(HARM, f"no correction was counted, but {other}", "uncounted", band)
    if not theirs:
        return Verdict(OK, in_band=band)
    if not ours and not patched.get("corrected_by"):
        return Verdict(FIND, f"stock only, without a correction: {theirs.what}", f"stock only: {theirs.sign}", band)
    if not ours:
        return Verdict(CORRECTED, f"stock: {theirs.what}", theirs.sign, band)
    corrected = [fix for fix, step in patched.get("corrected_by", {}).items() if step <= ours.step]
    reported = known(ours.wrong, ours.kinds, ours.error)
    if corrected:
        return Verdict(MISSED, f"{', '.join(corrected)} corrected, and yet: {ours.what}", ours.sign, band, reported)
    return Verdict(FIND, theirs.what, theirs.sign, band, reported)


def blamed(verdict: Verdict, without: Verdict) -> Verdict:
    """Of a case with a bug that is known, where `without` is the verdict without that bug: it stays to blame if all is right
    there, or another known one is to blame. What a correction missed is its own fault unless nothing is missed there."""
    assert verdict.known
    explained = without.kind in (OK, CORRECTED) or (without.kind == FIND and without.known)
    if not explained and (verdict.kind == FIND or without.kind != FIND):
        return verdict._replace(why=f"{verdict.why}; without {verdict.known.what}, {without.kind}: {without.why}", known=None)
    why = f"{verdict.known.what}, and {without.kind} without it: {verdict.why}"
    return verdict._replace(kind=FIND, why=why, known=verdict.known if explained else None)


def left_off(verdict: Verdict, whole: Verdict, off: Sequence[str]) -> Verdict:
    """Of a case in which something was missed, where `whole` is the verdict with all fixes on, those among them that are off by
    default, of which `off` corrected something."""
    if not off or whole.kind in FAILING:
        return verdict._replace(why=f"{verdict.why}; with all fixes {whole.kind}: {whole.why}")
    what = f"{', '.join(off)}, off by default"
    known = whole.known or (Known(what, {}) if whole.kind in (OK, CORRECTED) else None)
    return verdict._replace(kind=FIND, why=f"{what}, and {whole.kind} with it: {verdict.why}", known=known)


def fault(answer: Answer) -> Fault | None:
    """The first thing that is wrong."""
    for number, step in enumerate(answer["steps"]):
        for out in step["outputs"]:
            if not out["error"] < out["tolerance"][1]:
                return Fault(number, f"step {number} ({', '.join(step['kinds'])}), {out['name']}: error {out['error']:.3g} at "
                             f"{out['at']}", f"wrong output in {'+'.join(step['kinds'])}", out["name"],
                             tuple(step["kinds"]), out["error"])  # fmt: skip
    ended = answer["ended"]
    if ended == "raised":
        error = answer["error"]
        return Fault(len(answer["steps"]), f"{error['type']} in {error['where']}: {error['message']}",
                     f"{error['type']} in {error['where'].rpartition(':')[0]}",
                     f"{error['type']}: {error['message']}")  # fmt: skip
    if ended != "done":
        return Fault(len(answer["steps"]), ended if ended != "refused" else f"refused: {answer['why']}", ended, ended)
    return None


def difference(stock: Answer, patched: Answer) -> str | None:
    """In which of its steps before the first correction the patched side is not stock's to the bit."""
    first = min(patched.get("corrected_by", {}).values(), default=None)
    for number, (one, other) in enumerate(zip(stock["steps"], patched["steps"])):
        if first is not None and number >= first:
            return None
        if one["kinds"] != other["kinds"]:
            return f"step {number} has other rows"
        if [out["bits"] for out in one["outputs"]] != [out["bits"] for out in other["outputs"]]:
            return f"step {number} has other bits"
        if one["metadata"] != other["metadata"]:
            return f"step {number} has other metadata"
    if first is None and len(stock["steps"]) != len(patched["steps"]):
        return "the numbers of steps differ"
    return None


def _in_band(answer: Answer) -> bool:
    """Of a side that is right. One that is wrong is so in many rows, in some of them by little: that leaves nothing open."""
    outs = [out for step in answer["steps"] for out in step["outputs"]]
    return any(out["tolerance"][0] < out["error"] < out["tolerance"][1] for out in outs)


def totals(verdicts: list[Verdict]) -> dict[str, Any]:
    counts = {kind: sum(verdict.kind == kind for verdict in verdicts) for kind in KINDS}
    return {**counts, "band": sum(verdict.in_band for verdict in verdicts)}
