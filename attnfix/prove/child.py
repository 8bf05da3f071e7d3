"""One side of a proof, in an interpreter of its own: `python -m attnfix.prove.child REQUEST`, REQUEST and the answer as JSON.

The stock and the fixed side are this same command; the runner sets ATTNFIX=0 for the one and nothing for the other. Nothing
here patches: the installed `.pth` and the gate do, or nobody does.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import traceback
from contextlib import suppress
from types import FunctionType
from typing import Any

from attnfix.patches.scenario import NoSuchPath

from . import stubs


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Run one side. `request`: fix (id), engine, package (of the proof), seed, site (folder the engine must come from)."""
    door_open = "attnfix._autoload" in sys.modules  # before anything here could have imported it
    stubs.install(request["engine"])
    _ease_engine(request["engine"])
    proof = importlib.import_module(f"attnfix.patches.{request['package']}.proof")
    modules = {name: module for name in proof.MODULES if (module := _imported(name, getattr(proof, "MAY_LACK", ())))}
    stubs.freeze()
    _check_origin(request)
    answer = {"door_open": door_open, "kernel": proof.KERNEL, "untouched": _untouched(request["fix"]), "sabotages": {}}
    try:
        proof.prepare(modules)
        answer["main"] = _observed(proof.scenario, request["seed"])
    except NoSuchPath as absent:
        return {**answer, "no_such_path": str(absent), "state": _state(request["fix"])}
    answer["fired"] = _corrections(request["fix"])
    answer["control"] = _observed(proof.control, request["seed"])
    answer["control_fired"] = _corrections(request["fix"]) - answer["fired"]
    answer["state"] = state = _state(request["fix"])
    if state and state["state"] == "effective":
        for name, sabotage in proof.sabotages().items():
            with sabotage:
                answer["sabotages"][name] = _observed(proof.scenario, request["seed"])["error"]
    return answer


def _imported(name: str, may_lack: tuple[str, ...]) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if name in may_lack and error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def _observed(run: Any, seed: int) -> dict[str, Any]:
    observation = run(seed)
    finite = math.isfinite(observation.error)
    return {"error": observation.error if finite else None, "bits": observation.bits}


def _state(fix: str) -> dict[str, Any] | None:
    import attnfix

    return next((row for row in attnfix.status() if row["fix"] == fix), None)


def _corrections(fix: str) -> int:
    state = _state(fix)
    return state["counters"]["corrections"] if state else 0


def _untouched(fix: str) -> bool:
    """Whether every target that this release has is the engine's own plain function."""
    from attnfix.compat.wrapping import live
    from attnfix.patches.catalogue import BY_ID

    for target in BY_ID[fix].targets:
        for place in target.places:
            with suppress(KeyError, AttributeError):
                function = live(place)
                if type(function) is not FunctionType or function.__module__ != place.module:
                    return False
    return True


def _check_origin(request: dict[str, Any]) -> None:
    package = sys.modules[request["engine"]]
    if request["site"] and not str(package.__path__[0]).startswith(request["site"]):
        raise ImportError(f"{request['engine']} was imported from {package.__path__[0]}, not from {request['site']}")


def _ease_engine(engine: str) -> None:
    """sglang 0.5.4 asserts that a kernel is compiled; under Triton's interpreter it is not."""
    if engine == "sglang":
        import sglang.srt.utils as utils

        for module in (utils, getattr(utils, "common", utils)):
            if hasattr(module, "cached_triton_kernel"):
                module.cached_triton_kernel = lambda key_fn=None: lambda kernel: kernel


if __name__ == "__main__":
    try:
        result = main(json.loads(sys.argv[1]))
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    print("\nattnfix-answer " + json.dumps(result), flush=True)
