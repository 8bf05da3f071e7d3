"""Runs the two sides of a proof and says what they prove."""

from __future__ import annotations

import importlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from attnfix.compat import gate, ledger
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import FIXES

from . import edited

#: Errors: above RED the result is wrong, below GREEN it is bfloat16 rounding. Between them nothing is proven.
RED, GREEN = 0.05, 0.01
PROVEN, UNPROVEN, FAILED, LEFT_ALONE, NOT_JUDGED = "proven", "unproven", "failed", "unknown source", "not judged"
_MARK = "attnfix-answer "
_TIMEOUT_S = 600

#: Both sides get this. Tensors are small: threads only contend.
_ANYWHERE = {"SGLANG_ENABLE_TORCH_COMPILE": "0", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
#: And this, where no GPU is used: Triton kernels then run in Triton's interpreter
CPU = {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", **_ANYWHERE}


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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def proof_of(fix: Fix) -> Any:
    """The fix's proof module. Imports torch."""
    return importlib.import_module(f"attnfix.patches.{fix.package}.proof")


def prove(
    fix: Fix, release: str, root: Path, *, site: Path | None = None, edit: str | None = None, seed: int | None = None,
    gpu: bool = False,
) -> Result:  # fmt: skip
    """Prove `fix` on the engine package at `root`; `site` is put on the path when the engine is not installed here.

    With `edit`, one of the proof's EDITS is made in a copy of `site` first: for a fault that no published release has.
    Lengths and poison are drawn anew in every run unless `seed` is given. With `gpu`, a proof whose kernel is the engine's own
    Triton kernel runs it on the GPU; others run on the CPU as ever.
    """
    proof = proof_of(fix) if edit is not None or gpu else None
    device = "cuda" if gpu and proof.KERNEL == "interpreted" else "cpu"  # type: ignore[union-attr]
    with ExitStack() as stack:
        if edit is not None:
            edits: dict[str, edited.Edit] = proof.EDITS  # type: ignore[union-attr]
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="attnfix-"))
            site = edited.site(Path(folder), fix.engine, root, edits[edit])
            root = site / fix.engine
        seed = secrets.randbelow(2**31) if seed is None else seed
        if edit in getattr(proof, "UNRECOGNISED", ()):
            answers = run_sides([fix], fix.engine, seed, stock=False, site=site, run=False)
            return _unrecognised(fix, release, gate.judge(fix, root), answers.get(fix.id, answers), edit)
        with ThreadPoolExecutor(2) as both:
            stock, fixed = both.map(lambda off: run_side(fix, seed, stock=off, site=site, device=device), (True, False))
        return replace(conclude(fix, release, root, (stock, fixed), edit), seed=seed)


def conclude(fix: Fix, release: str, root: Path, sides: tuple[dict, dict], edit: str | None = None) -> Result:
    """What the answers of both sides, stock and fixed, run with the same seed on the package at `root`, prove."""
    stock, fixed = sides
    judged = gate.judge(fix, root)
    verdict, reason = weigh(judged, stock, fixed)
    return Result(
        fix=fix.id,
        engine=fix.engine,
        release=release,
        verdict=verdict,
        reason=reason,
        device=stock.get("device", "cpu"),
        kernel=stock.get("kernel", "emulated"),
        stock_error=_error(stock),
        fixed_error=_error(fixed),
        control_identical=_control_identical(stock, fixed),
        corrections=fixed.get("fired"),
        measure=stock.get("measure"),
        code=judged.code,
        edit=edit,
    )


def examined(fix: Fix, release: str) -> bool:
    """Whether the fix's ledger judges that release; one that is no version may be any. A local label (`+cu128`) is left out."""
    try:
        version = Version(Version(release).public)
    except InvalidVersion:
        return True
    return any(SpecifierSet(span).contains(version, prereleases=True) for span in fix.examined)


def not_judged(fix: Fix, release: str, root: Path) -> Result | None:
    """The result where the ledger is not meant to judge the release and its code is no other's: there is nothing to prove."""
    if examined(fix, release) or gate.judge(fix, root).kind != ledger.UNKNOWN:
        return None
    spans = ", ".join(fix.examined)
    reason = f"releases {spans} alone were examined; attnfix leaves this code alone, and nobody has tried it for the bug"
    return Result(fix.id, fix.engine, release, NOT_JUDGED, reason, kernel="none")


def run_side(fix: Fix, seed: int, *, stock: bool, site: Path | None = None, device: str = "cpu") -> dict[str, Any]:
    """Run one side of a proof in a fresh interpreter; its answer, or {"error": …}. ATTNFIX=0 makes the stock side: the
    sole difference. On both, all other fixes are off: none answers for its neighbour."""
    answers = run_sides([fix], fix.engine, seed, stock=stock, site=site, run=True, device=device)
    return answers.get(fix.id, answers)


def run_sides(
    fixes: Sequence[Fix], engine: str, seed: int, *, stock: bool, site: Path | None, run: bool, device: str = "cpu",
    child: Sequence[str] = ("-m", "attnfix.prove.child"),
) -> dict[str, Any]:  # fmt: skip
    """{fix id: answer} of several fixes after one import of the engine, or {"error": …}.

    With `run` each scenario runs in a fork of its own; without, the answers say what stands in the engine. `child` are the
    interpreter's arguments that take the request.
    """
    request = {
        "engine": engine,
        "site": str(site) if site else None,
        "seed": seed,
        "packages": {fix.id: fix.package for fix in fixes},
        "run": run,
        "device": device,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    environment.update((CPU if device == "cpu" else _ANYWHERE) | _switches(fixes))
    for name in ("SGLANG_PLUGINS", "VLLM_PLUGINS"):
        environment.pop(name, None)
    if site:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), environment.get("PYTHONPATH"))))
    if stock:
        environment["ATTNFIX"] = "0"
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        environment["ATTNFIX_RUN_DIR"] = scratch
        command = [*child, json.dumps(request)]
        try:
            done = start(command, env=environment, cwd=scratch, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return {"error": f"no answer within {_TIMEOUT_S} s"}
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if answers:
        return json.loads(answers[-1][len(_MARK) :])
    said = done.stderr.strip().splitlines() or ["nothing on standard error"]
    return {"error": f"the interpreter ended with {done.returncode}: {said[-1]}", "traceback": done.stderr}


def _switches(fixes: Sequence[Fix]) -> dict[str, str]:
    """These fixes on, every other one off."""
    on = {True: "auto", False: "1"}
    return {fix.switch: on[fix.default] if fix in fixes else "0" for fix in FIXES}


def _fresh(arguments: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **how)


#: Starts the Python of a side. CI has forks of one that has imported torch here (scripts/warm.py).
start: Callable[..., subprocess.CompletedProcess[str]] = _fresh


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


def _unrecognised(fix: Fix, release: str, judged: gate.Verdict, stands: dict[str, Any], edit: str | None) -> Result:
    """For an edit that the gate must not take for code it knows: what stands in the engine with the fix on."""
    verdict, reason = LEFT_ALONE, judged.reason
    if "error" in stands:
        verdict, reason = UNPROVEN, f"the fixed side did not run: {stands['error']}"
    elif judged.kind != ledger.UNKNOWN or not stands["untouched"]:
        verdict, reason = FAILED, f"an edit that nobody has tested was taken for known code: {judged.reason}"
    return Result(fix.id, fix.engine, release, verdict, reason, kernel="none", edit=edit)


def _first_failure(stock: dict[str, Any], fixed: dict[str, Any]) -> str | None:
    if _absent(stock) or _absent(fixed):
        return "the code path of the bug is not there, yet the ledger calls it affected"
    state = fixed["state"] or {}
    checks = [
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
