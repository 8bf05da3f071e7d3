"""Runs the two sides of a proof."""

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
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge, ledger
from attnfix.patches.catalogue import FIXES
from attnfix.patches.lab.proof import Proof

from . import edited_release
from .verdict import NOT_JUDGED, Answer, Result, control_identical, error_of, judge_proof, judge_unknown_edit

_MARK = "attnfix-answer "
_TIMEOUT_S = 600
#: Both sides get this. Tensors are small: threads only contend.
_ANYWHERE = {"SGLANG_ENABLE_TORCH_COMPILE": "0", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
#: And this, where no GPU is used: Triton kernels then run in Triton's interpreter
CPU = {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", **_ANYWHERE}


def proof_of(fix: Fix) -> type[Proof]:
    """The fix's proof. Imports torch, and no engine."""
    found: type[Proof] = importlib.import_module(f"attnfix.patches.{fix.package}.proof").Proof
    return found


def prove(
    fix: Fix, release: str, root: Path, *, site: Path | None = None, edit: str | None = None, seed: int | None = None,
    gpu: bool = False, cold: bool = False, stock: Callable[[], Answer] | None = None,
) -> Result:  # fmt: skip
    """Prove `fix` on the engine package at `root`; `site` is put on the path when the engine is not installed here.

    With `edit`, one of the proof's edits is made in a copy of `site` first: for a fault that no published release has.
    Lengths and poison are drawn anew in every run unless `seed` is given. With `gpu`, a proof whose kernel is the engine's own
    Triton kernel runs it on the GPU; others run on the CPU as ever. With `cold` both sides are fresh interpreters, within
    `warm.proofs()`, too. `stock` gives the answer of the stock side with this seed, where it runs elsewhere.
    """
    device = "cuda" if gpu and proof_of(fix).kernel == "interpreted" else "cpu"
    seed = secrets.randbelow(2**31) if seed is None else seed
    with ExitStack() as stack:
        if edit is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="attnfix-"))
            site = edited_release.site(Path(folder), fix.engine, root, proof_of(fix).edits[edit])
            root = site / fix.engine
            if edit in proof_of(fix).unrecognised:
                answers = run_sides([fix], fix.engine, seed, stock=False, site=site, run=False)
                return judge_unknown_edit(fix, release, judge.judge(fix, root), answers.get(fix.id, answers), edit)

        def own(stock: bool) -> Answer:
            return run_side(fix, seed, stock=stock, site=site, device=device, cold=cold)

        with ThreadPoolExecutor(1) as beside:
            fixed = beside.submit(own, False)
            sides = stock() if stock else own(True), fixed.result()
        return replace(conclude(fix, release, root, sides, edit), seed=seed)


def conclude(fix: Fix, release: str, root: Path, sides: tuple[Answer, Answer], edit: str | None = None) -> Result:
    """What the answers of both sides, stock and fixed, run with the same seed on the package at `root`, prove."""
    stock, fixed = sides
    judged = judge.judge(fix, root)
    verdict, reason = judge_proof(judged, stock, fixed)
    return Result(
        fix=fix.id,
        engine=fix.engine,
        release=release,
        verdict=verdict,
        reason=reason,
        device=stock.get("device", "cpu"),
        kernel=stock.get("kernel", "emulated"),
        stock_error=error_of(stock),
        fixed_error=error_of(fixed),
        control_identical=control_identical(stock, fixed),
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
    return any(SpecifierSet(span).contains(version, prereleases=True) for span in _spans(fix))


def _spans(fix: Fix) -> tuple[str, ...]:
    return fix.examined or (ENGINES[fix.engine].supported,)


def not_judged(fix: Fix, release: str, root: Path) -> Result | None:
    """The result where the ledger is not meant to judge the release and its code is no other's: there is nothing to prove."""
    if examined(fix, release) or judge.judge(fix, root).kind != ledger.UNKNOWN:
        return None
    spans = ", ".join(_spans(fix))
    reason = f"releases {spans} alone were examined; attnfix leaves this code alone, and nobody has tried it for the bug"
    return Result(fix.id, fix.engine, release, NOT_JUDGED, reason, kernel="none")


def run_side(fix: Fix, seed: int, *, stock: bool, site: Path | None = None, device: str = "cpu", cold: bool = False) -> Answer:
    """Run one side of a proof in a process of its own; its answer, or {"error": …}. ATTNFIX=0 makes the stock side: the
    sole difference. On both, all other fixes are off: none answers for its neighbour."""
    answers = run_sides([fix], fix.engine, seed, stock=stock, site=site, run=True, device=device, cold=cold)
    answer: Answer = answers.get(fix.id, answers)
    return answer


def run_sides(
    fixes: Sequence[Fix], engine: str, seed: int, *, stock: bool, site: Path | None, run: bool, device: str = "cpu",
    child: Sequence[str] = ("-m", "attnfix.prove.side"), cold: bool = False,
) -> Answer:  # fmt: skip
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
            done = (_fresh if cold else start)(command, env=environment, cwd=scratch, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return {"error": f"no answer within {_TIMEOUT_S} s"}
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if answers:
        answer: Answer = json.loads(answers[-1][len(_MARK) :])
        return answer
    said = done.stderr.strip().splitlines() or ["nothing on standard error"]
    return {"error": f"the interpreter ended with {done.returncode}: {said[-1]}", "traceback": done.stderr}


def _switches(fixes: Sequence[Fix]) -> dict[str, str]:
    """These fixes on, every other one off: by id, for they may have been sent to this process."""
    on, wanted = {True: "auto", False: "1"}, {fix.id for fix in fixes}
    return {fix.switch: on[fix.default] if fix.id in wanted else "0" for fix in FIXES}


def _fresh(arguments: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **how)


#: Starts the Python of a side. Within `warm.proofs()` it is a fork of one that has imported torch.
start: Callable[..., subprocess.CompletedProcess[str]] = _fresh
