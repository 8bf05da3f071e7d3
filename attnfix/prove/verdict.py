"""What the answers of both sides of a proof say: red or green, proven or not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge, ledger
from attnfix.compat.status.fix_state import DORMANT

#: Errors: above RED the result is wrong, below GREEN it is bfloat16 rounding. Between them nothing is proven.
RED, GREEN = 0.05, 0.01
PROVEN, UNPROVEN, FAILED, LEFT_ALONE, NOT_JUDGED = "proven", "unproven", "failed", "unknown source", "not judged"
#: What one side has printed, or {"error": …}; of several fixes, by id
Answer = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """One row of `attnfix prove`. Errors are ‖out - ref‖ / ‖ref‖ against float64, or what `measure` says; None where they
    are not finite. `code` names the witnesses' digests; `edit` the edit of the release's source, where there was one; `seed`
    what the run's random numbers came from."""

    fix: str
    engine: str
    release: str
    verdict: str
    reason: str
    device: str = "cpu"
    kernel: str = "emulated"
    stock_error: float | None = None
    fixed_error: float | None = None
    control_identical: bool | None = None
    corrections: int | None = None
    measure: str | None = None
    code: str | None = None
    edit: str | None = None
    seed: int | None = None

    @property
    def holds(self) -> bool:
        return self.verdict not in (UNPROVEN, FAILED)

    @property
    def row(self) -> tuple[Any, ...]:
        """What each run must say: all but the reason, the seed and the errors' digits."""
        errors = [None if error is None else (error > RED, error < GREEN) for error in (self.stock_error, self.fixed_error)]
        return self.verdict, self.kernel, self.control_identical, self.corrections, self.code, *errors

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def is_red(answer: Answer) -> bool:
    error = error_of(answer)
    return error is None or error > RED


def is_green(answer: Answer) -> bool:
    error = error_of(answer)
    return error is not None and error < GREEN


def outcome(stock: Answer) -> tuple[str | None, str]:
    """`red`, `green` or `absent`: what the stock scenario gave, None if it gave neither; and the reason."""
    if "error" in stock:
        return None, stock["error"]
    if _absent(stock):
        return "absent", stock["no_such_path"]
    if is_red(stock):
        return "red", ""
    return ("green", "") if is_green(stock) else (None, f"error {error_of(stock)} is neither red nor green")


def judge_proof(judged: judge.Verdict, stock: Answer, fixed: Answer) -> tuple[str, str]:
    """(verdict, reason) of a proof from the gate's word and the answers of both sides."""
    for name, side in (("stock", stock), ("fixed", fixed)):
        if "error" in side:
            return UNPROVEN, f"the {name} side did not run: {side['error']}"
    if judged.kind == ledger.UNKNOWN:
        shows = "shows the bug" if not _absent(stock) and is_red(stock) else "does not show the bug"
        return UNPROVEN, f"attnfix leaves this code alone, {judged.reason}; it {shows}"
    if not judged.affected:
        return _judge_healthy(judged, stock, fixed)
    if not fixed["hook_installed"]:
        return UNPROVEN, "attnfix is NOT ACTIVE in this Python: its .pth file is not in a folder that is processed at start"
    failure = _first_failure(stock, fixed)
    return (FAILED, failure) if failure else (PROVEN, f"{judged.reason}; {fixed['fired']} corrections{_right_on_stock(stock)}")


def judge_unknown_edit(fix: Fix, release: str, judged: judge.Verdict, stands: Answer, edit: str | None) -> Result:
    """For an edit that the gate must not take for code it knows: what stands in the engine with the fix on."""
    verdict, reason = LEFT_ALONE, judged.reason
    if "error" in stands:
        verdict, reason = UNPROVEN, f"the fixed side did not run: {stands['error']}"
    elif judged.kind != ledger.UNKNOWN or not stands["untouched"]:
        verdict, reason = FAILED, f"an edit that nobody has tested was taken for known code: {judged.reason}"
    return Result(fix.id, fix.engine, release, verdict, reason, kernel="none", edit=edit)


def _first_failure(stock: Answer, fixed: Answer) -> str | None:
    if _absent(stock) or _absent(fixed):
        return "the code path of the bug is not there, yet the ledger calls it affected"
    state = fixed["state"] or {}
    checks = [
        (not is_red(stock), "the stock side is right on an affected release: this proves nothing"),
        (not stock["untouched"], "the stock side does not run the engine's own functions"),
        (state.get("state") == DORMANT, "no module of a target is loaded: `modules` of the proof names them"),
        (state.get("state") != "effective", f"the fix is {state.get('state')}: {state.get('reason')}"),
        (fixed["fired"] == 0, "no correction was counted"),
        (not is_green(fixed), "the fixed side is wrong"),
        (not is_green({"main": stock["control"]}), "the control is wrong on the stock side"),
        (not control_identical(stock, fixed), "the fix changed a result that the bug does not touch"),
        (fixed["control_fired"] != 0, "a correction was counted where the bug is not touched"),
        (not fixed["sabotages"], "the proof carries no sabotage"),
    ]
    checks += [
        (not is_red({"main": {"error": error}}), f"a sabotaged fix went unnoticed ({name})")
        for name, error in fixed["sabotages"].items()
    ]
    return next((reason for failed, reason in checks if failed), None)


def _right_on_stock(stock: Answer) -> str:
    """The cases of the bug, counted from 0, that the worst one hides: they prove nothing here."""
    errors = stock["main"].get("cases", [])
    right = [str(number) for number, error in enumerate(errors) if not is_red({"main": {"error": error}})]
    return f"; of {len(errors)} cases of the bug, right on stock: {', '.join(right)}" if right else ""


def _judge_healthy(judged: judge.Verdict, stock: Answer, fixed: Answer) -> tuple[str, str]:
    if not fixed["untouched"]:
        return FAILED, "a function of a healthy release was touched"
    if _absent(stock):
        return judged.kind, f"{judged.reason}; {stock['no_such_path']}"
    if not is_green(stock) or not is_green(fixed):
        return FAILED, "a release that the ledger calls healthy gives a wrong result"
    return judged.kind, judged.reason


def _absent(answer: Answer) -> bool:
    return "no_such_path" in answer


def error_of(answer: Answer) -> float | None:
    """The error of a side's scenario; None where it is not finite."""
    error: float | None = answer.get("main", {}).get("error")
    return error


def control_identical(stock: Answer, fixed: Answer) -> bool | None:
    """Whether the control has the same bits on both sides; None where a side has none."""
    if "control" not in stock or "control" not in fixed:
        return None
    return bool(stock["control"]["bits"] == fixed["control"]["bits"])
