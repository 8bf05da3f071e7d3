"""One side of a proof, in an interpreter of its own: `python -m attnfix.prove.side REQUEST`, REQUEST and the answer as JSON.

The stock and the fixed side are this same command; the runner sets ATTNFIX=0 for the one and nothing for the other. Nothing
here patches: the installed `.pth` and the gate do, or nobody does.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import traceback
from contextlib import suppress
from types import FunctionType
from typing import Any

from attnfix.patches.lab.proof import NoSuchPath, Observation, Proof, combine, each, run_on

from . import stubs
from .verdict import RED


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Run one side of one fix, or of several that share the import: {fix id: answer}.

    `request`: engine, site (folder the engine must come from), seed, packages (fix id -> package of its proof), device, and
    run: whether the scenarios are run, or only looked at what stands in the engine.
    """
    hook_installed = "attnfix.bootstrap.import_hook" in sys.modules  # before anything here could have imported it
    run_on(request["device"])
    stubs.install(request["engine"])
    _ease_engine(request["engine"])
    kinds = {
        fix: importlib.import_module(f"attnfix.patches.{package}.proof").Proof for fix, package in request["packages"].items()
    }
    proofs = {fix: _tried(kind) for fix, kind in kinds.items()}
    stubs.freeze()
    _check_origin(request)
    answers = {}
    for fix, proof in proofs.items():
        kernel = "real" if request["device"] == "cuda" else kinds[fix].kernel
        answer = {"hook_installed": hook_installed, "kernel": kernel, "measure": kinds[fix].measure}
        answer |= {"untouched": _untouched(fix), "sabotages": {}, "device": request["device"]}
        if isinstance(proof, dict):
            answers[fix] = {**answer, **proof}
        elif not request["run"]:
            answers[fix] = {**answer, "state": _state(fix)}
        elif len(proofs) == 1:
            answers[fix] = _side(fix, proof, request["seed"], answer)
        else:
            answers[fix] = _in_a_fork(_side, fix, proof, request["seed"], answer)
    return answers


def _side(fix: str, proof: Proof, seed: int, answer: dict[str, Any]) -> dict[str, Any]:
    try:
        proof.prepare()
        answer["main"] = _observed(proof.scenario, seed)
    except NoSuchPath as absent:
        return {**answer, "no_such_path": str(absent), "state": _state(fix)}
    answer["fired"] = _corrections(fix)
    answer["control"] = _observed(proof.control, seed)
    answer["control_fired"] = _corrections(fix) - answer["fired"]
    answer["state"] = state = _state(fix)
    if state and state["state"] == "effective":
        os.environ[state["switch"]] = "auto"  # a fix that was asked for ends a process in which it fails, as a broken one may
        for name, sabotage in proof.sabotages().items():
            with sabotage:
                answer["sabotages"][name] = _observed(proof.scenario, seed, limit=RED)["error"]
    return answer


def _tried(step: Any, *args: Any) -> Any:
    """What `step` returns, or the error that came of it."""
    try:
        return step(*args)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def _in_a_fork(step: Any, *args: Any) -> dict[str, Any]:
    """`step` in a process of its own, so that what one proof replaces in the engine is not there for the next."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                pipe.write(json.dumps(_tried(step, *args)))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(said) if said else {"error": f"the process ended with {status} and said nothing"}


def _observed(run: Any, seed: int, limit: float = math.inf) -> dict[str, Any]:
    cases = each(seen := run(seed), limit)
    observation = seen if isinstance(seen, Observation) else combine(*cases)
    error, *errors = [one.error if math.isfinite(one.error) else None for one in (observation, *cases)]
    return {"error": error, "bits": observation.bits, "cases": errors}


def _state(fix: str) -> dict[str, Any] | None:
    import attnfix

    return next((row for row in attnfix.status() if row["fix"] == fix), None)


def _corrections(fix: str) -> int:
    state = _state(fix)
    return state["counters"]["corrections"] if state else 0


def _untouched(fix: str) -> bool:
    """Whether every function that the fix is about, in this release, is the engine's own plain one.

    Another fix may have its correction on the same function: then this one must have none there.
    """
    from attnfix.compat.arming.wrapper import WrappedTarget, live
    from attnfix.compat.fix import Attribute
    from attnfix.patches.catalogue import BY_ID

    for target in (target for target in BY_ID[fix].targets if not isinstance(target, Attribute)):
        for place in target.code_paths:
            with suppress(KeyError, AttributeError):
                function = live(place)
                if (wrapper := WrappedTarget.of(function)) and all(link.state.fix.id != fix for link in wrapper.links):
                    function = wrapper.wrapped
                if type(function) is not FunctionType or WrappedTarget.of(function) or function.__module__ != place.module:
                    return False
                break  # the first place that a release has is the target: another one may be a name for the same function
    return True


def _check_origin(request: dict[str, Any]) -> None:
    package = sys.modules[request["engine"]]
    if request["site"] and not str(package.__path__[0]).startswith(request["site"]):
        raise ImportError(f"{request['engine']} was imported from {package.__path__[0]}, not from {request['site']}")


def _ease_engine(engine: str) -> None:
    """What stands in the way of an import here, and of no proof."""
    if engine == "sglang":
        import torch

        if not hasattr(torch._C._cpu, "_is_amx_tile_supported"):  # 0.5.1 asks for it; torch 2.13 has it no more
            torch._C._cpu._is_amx_tile_supported = lambda: False  # type: ignore[attr-defined]
        import sglang.srt.utils as utils

        # 0.5.4 asserts that a kernel is compiled; under Triton's interpreter it is not

        for module in (utils, getattr(utils, "common", utils)):
            if hasattr(module, "cached_triton_kernel"):
                module.cached_triton_kernel = lambda key_fn=None: lambda kernel: kernel


if __name__ == "__main__":
    print("\nattnfix-answer " + json.dumps(_tried(main, json.loads(sys.argv[1]))), flush=True)
