"""Runs the two sides of a proof and says what they prove."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnfix.compat import gate, ledger
from attnfix.compat.fix import Fix

#: Relative errors: above RED the result is wrong, below GREEN it is bfloat16 rounding. Between them nothing is proven.
RED, GREEN = 0.05, 0.01
PROVEN, UNPROVEN, FAILED = "proven", "unproven", "failed"
_MARK = "attnfix-answer "
_TIMEOUT_S = 600

#: Both sides get this; no GPU is used, so Triton kernels run in Triton's interpreter.
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", "SGLANG_ENABLE_TORCH_COMPILE": "0", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Result:
    """One row of `attnfix prove`. Errors are ‖out - ref‖ / ‖ref‖ against float64; None where they are not finite."""

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

    @property
    def holds(self) -> bool:
        return self.verdict not in (UNPROVEN, FAILED)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def prove(fix: Fix, release: str, root: Path, *, site: Path | None = None) -> Result:
    """Prove `fix` on the engine package at `root`; `site` is put on the path when the engine is not installed here."""
    seed = secrets.randbelow(2**31)
    with ThreadPoolExecutor(2) as both:
        stock, fixed = both.map(lambda off: run_side(fix, seed, stock=off, site=site), (True, False))
    verdict, reason = weigh(gate.judge(fix, root), stock, fixed)
    return Result(
        fix=fix.id,
        engine=fix.engine,
        release=release,
        verdict=verdict,
        reason=reason,
        kernel=stock.get("kernel", "emulated"),
        stock_error=_error(stock),
        fixed_error=_error(fixed),
        control_identical=_control_identical(stock, fixed),
    )


def run_side(fix: Fix, seed: int, *, stock: bool, site: Path | None = None) -> dict[str, Any]:
    """Run one side in a fresh interpreter; its answer, or {"error": …}. `stock` sets ATTNFIX=0, the sole difference."""
    request = {
        "fix": fix.id,
        "engine": fix.engine,
        "package": fix.package,
        "seed": seed,
        "site": str(site) if site else None,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    environment.update(_ENVIRONMENT)
    for name in ("SGLANG_PLUGINS", "VLLM_PLUGINS"):
        environment.pop(name, None)
    if site:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), environment.get("PYTHONPATH"))))
    if stock:
        environment["ATTNFIX"] = "0"
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        environment["ATTNFIX_RUN_DIR"] = scratch
        command = [sys.executable, "-m", "attnfix.prove.child", json.dumps(request)]
        try:
            done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return {"error": f"no answer within {_TIMEOUT_S} s"}
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if answers:
        return json.loads(answers[-1][len(_MARK) :])
    said = done.stderr.strip().splitlines() or ["nothing on standard error"]
    return {"error": f"the interpreter ended with {done.returncode}: {said[-1]}", "traceback": done.stderr}


def is_red(answer: dict[str, Any]) -> bool:
    error = _error(answer)
    return error is None or error > RED


def is_green(answer: dict[str, Any]) -> bool:
    error = _error(answer)
    return error is not None and error < GREEN


def weigh(judged: gate.Verdict, stock: dict[str, Any], fixed: dict[str, Any]) -> tuple[str, str]:
    """(verdict, reason) of a proof from the gate's word and the answers of both sides."""
    for name, side in (("stock", stock), ("fixed", fixed)):
        if "error" in side:
            return UNPROVEN, f"the {name} side did not run: {side['error']}"
    if judged.kind == ledger.UNKNOWN:
        shows = "shows the bug" if not _absent(stock) and is_red(stock) else "does not show the bug"
        return UNPROVEN, f"attnfix leaves this code alone, {judged.reason}; it {shows}"
    if not judged.affected:
        return _weigh_healthy(judged, stock, fixed)
    if not fixed["door_open"]:
        return UNPROVEN, "attnfix is NOT ACTIVE in this Python: its .pth file is not in a folder that is processed at start"
    failure = _first_failure(stock, fixed)
    return (FAILED, failure) if failure else (PROVEN, f"{judged.reason}; {fixed['fired']} corrections")


def _first_failure(stock: dict[str, Any], fixed: dict[str, Any]) -> str | None:
    state = fixed["state"] or {}
    checks = [
        (_absent(stock) or _absent(fixed), "the code path of the bug is not there, yet the ledger calls it affected"),
        (not is_red(stock), "the stock side is right on an affected release: this proves nothing"),
        (not stock["untouched"], "the stock side does not run the engine's own functions"),
        (state.get("state") != "effective", f"the fix is {state.get('state')}: {state.get('reason')}"),
        (fixed["fired"] == 0, "no correction was counted"),
        (not is_green(fixed), "the fixed side is wrong"),
        (not is_green({"main": stock["control"]}), "the control is wrong on the stock side"),
        (not _control_identical(stock, fixed), "the fix changed a result that the bug does not touch"),
        (fixed["control_fired"] != 0, "a correction was counted where the bug is not touched"),
        (not fixed["sabotages"], "the proof carries no sabotage"),
    ]
    checks += [
        (not is_red({"main": {"error": error}}), f"a sabotaged fix went unnoticed ({name})")
        for name, error in fixed["sabotages"].items()
    ]
    return next((reason for failed, reason in checks if failed), None)


def _weigh_healthy(judged: gate.Verdict, stock: dict[str, Any], fixed: dict[str, Any]) -> tuple[str, str]:
    if not fixed["untouched"]:
        return FAILED, "a function of a healthy release was touched"
    if _absent(stock):
        return judged.kind, f"{judged.reason}; {stock['no_such_path']}"
    if not is_green(stock) or not is_green(fixed):
        return FAILED, "a release that the ledger calls healthy gives a wrong result"
    return judged.kind, judged.reason


def _absent(answer: dict[str, Any]) -> bool:
    return "no_such_path" in answer


def _error(answer: dict[str, Any]) -> float | None:
    return answer.get("main", {}).get("error")


def _control_identical(stock: dict[str, Any], fixed: dict[str, Any]) -> bool | None:
    if "control" not in stock or "control" not in fixed:
        return None
    return stock["control"]["bits"] == fixed["control"]["bits"]
