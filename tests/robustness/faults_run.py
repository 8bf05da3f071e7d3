"""Forks a child for each injection: `python faults_run.py REQUEST`, REQUEST as JSON; answers are JSON lines.

The children come from one parent that has loaded attnfix (`warm`) or its import hook alone, and not the engine. Each imports
the engine with a fault at one step, as a program would that catches what it can and goes on, then uses it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import injection
import small_engine
from children import TOO_LONG, forked, prepare_for

REQUEST: dict[str, Any] = {}
FAULTS: dict[str, Callable[[], None]] = {
    "exception": injection.raising(RuntimeError),
    "MemoryError": injection.raising(MemoryError),
    "KeyboardInterrupt": injection.raising(KeyboardInterrupt),
    "killed": injection.kill,
}


def small(inject: injection.Injection) -> dict[str, Any]:
    """Import and use the small engine; again without a fault, where an interrupt has passed."""
    told: dict[str, Any] = {"interrupted": False, "error": None}
    try:
        with inject:
            small_engine.load()
    except KeyboardInterrupt:
        told["interrupted"] = True
        small_engine.load()
    except BaseException as error:
        told["error"] = f"{type(error).__name__}: {error}"
        try:
            small_engine.load()
        except BaseException as again:
            return {**told, "error": f"{told['error']}, and again {again!r}"}
    seen = small_engine.use()
    return {**told, "half": seen.half, "armed": seen.armed, "seen": list(seen)}


def real(inject: injection.Injection) -> dict[str, Any]:
    """Import the target modules of a real engine; what stands is told by its functions, not by what attnfix says."""
    import importlib

    told: dict[str, Any] = {"interrupted": False, "error": None}

    def load() -> None:
        for name in REQUEST["modules"]:
            importlib.import_module(name)

    try:
        with inject:
            load()
    except KeyboardInterrupt:
        told["interrupted"] = True
        with suppress(Exception):  # an engine need not bear a second import: ops are registered already
            load()
    except BaseException as error:
        told["error"] = f"{type(error).__name__}: {error}"
        return told
    from attnfix.bootstrap import process

    halves = [state.fix.id for state in process.activation().states.values() if half(state)]
    rows = {row["fix"]: row["state"] for row in process.activation().rows()}
    armed = all(rows.get(fix) == "installed" for fix in REQUEST["expected"])  # an interrupted engine's fixes may not be there
    return {**told, "half": bool(halves), "seen": halves, "armed": armed}


def kernel(inject: injection.Injection) -> dict[str, Any]:
    """Load the kernels of a device, by a stand-in for the CUDA driver: wholly there or unavailable, and so the second time."""
    from attnfix.kernels import driver

    told: dict[str, Any] = {"interrupted": False, "error": None, "half": False, "seen": []}
    for faulty in (True, False):
        try:
            if faulty:
                with inject:
                    driver.device(0)
            device = driver.device(0)
        except KeyboardInterrupt:
            told["interrupted"] = True
        except (driver.KernelUnavailable, RuntimeError, MemoryError) as error:  # the last two disarm the fix that asked
            told["seen"].append(type(error).__name__)
            told["armed"] = False
        else:
            told["seen"].append("loaded")
            told["armed"] = True
            told["half"] = told["half"] or set(device.functions) != {"k_a"} or not all(device.functions.values())
    return told


def half(state: Any) -> bool:
    """Whether a correction of this fix would run in one place of the engine and not in another that is loaded."""
    from attnfix.compat.arming.wrapper import WrappedTarget, live
    from attnfix.compat.fix import Attribute

    active = []
    for target in state.fix.targets:
        for place in target.code_paths:
            try:
                standing = live(place)
            except (KeyError, AttributeError):
                continue  # not loaded, not in this release, or a member that is not there
            if isinstance(target, Attribute):
                active.append(standing == target.value and place in state.patch_points)
            elif wrapper := WrappedTarget.of(standing):
                known = any(link.state is state for link in wrapper.links)
                active.append(known and state.armed)
            else:
                active.append(False)
    return not state.fix.independent and any(active) and not all(active)


def wrong(kind: str, strict: bool, told: dict[str, Any]) -> str | None:
    """What came out wrong, or None."""
    if told["ended"] == TOO_LONG:
        return "did not end in time"
    if kind == "killed":
        return None if told["ended"] in (-9, 0) else f"ended with {told['ended']}: {told.get('error')}"
    if strict and told["ended"] == 78:
        ours = [line for line in told["lines"] if line.startswith(("attnfix: refusing to serve, ", "attnfix: not active in "))]
        return None if len(ours) == 1 else f"ended with 78 and {len(ours)} lines that say why: {told['lines']}"
    if told["ended"] or told.get("error"):
        return f"ended with {told['ended']}, raised {told.get('error')}"
    if told["half"]:
        return f"half armed: {told['seen']}"
    if strict and not told["armed"]:
        return f"served without a required fix: {told['seen']}"
    if told["interrupted"] and kind != "KeyboardInterrupt":
        return "an interrupt that nobody sent"
    return None


def steps_to_try(sites: list[list[Any]]) -> list[int]:
    """Of each line the first two times it runs and the last; loops over rows and records make up the rest."""
    times: dict[tuple[str, int], list[int]] = {}
    for at, site in enumerate(sites, start=1):
        times.setdefault((site[0], site[1]), []).append(at)
    return sorted({at for found in times.values() for at in (*found[:2], found[-1])})


def jobs(steps: list[int]) -> Iterator[tuple[str, int, int]]:
    """(kind of fault, step, distance of a second fault)."""
    dice = random.Random(REQUEST["seed"])
    for kind in REQUEST["kinds"]:
        few = sorted(dice.sample(steps, min(REQUEST["sample"] or len(steps), len(steps))))
        if kind == "two faults":
            yield from (("exception", at, dice.randint(1, 40)) for at in few)
        else:
            yield from ((kind, at, 0) for at in few)


def main() -> None:
    run = {"small": small, "real": real, "kernel": kernel}[REQUEST["on"]]
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        folder = Path(scratch)
        os.environ["ATTNFIX_RUN_DIR"] = str(folder / "run")
        if REQUEST["on"] == "real":
            prepare_for(REQUEST["engine"])
        elif REQUEST["on"] == "kernel":
            import fake_cuda

            fake_cuda.install(Path(REQUEST["folder"]), lambda owner, name, value, raising=True: setattr(owner, name, value))
        else:
            small_engine.put_in_place(Path(REQUEST["folder"]))
        if REQUEST["warm"]:
            import attnfix.compat.arming.activation
            import attnfix.compat.arming.ray_workers  # noqa: F401
        counter = injection.Injection(0, lambda: None)
        whole = forked(lambda: {**run(counter), "sites": counter.sites}, folder)
        steps = steps_to_try(whole.pop("sites", []))
        print(json.dumps({"steps": len(steps), "whole": whole}), flush=True)
        if not whole.get("armed"):
            return
        for kind, at, then in jobs(steps):
            inject = injection.Injection(at, FAULTS[kind], then)
            told = forked(lambda inject=inject: {**run(inject), "site": inject.site}, folder)  # type: ignore[misc]
            found = wrong(kind, REQUEST["strict"], told)
            outcome = outcome_of(told)
            if kind != "killed":  # whose records the survivor must cope with
                shutil.rmtree(folder / "run", ignore_errors=True)
            name = f"{kind} and a second fault {then} calls later" if then else kind
            print(
                json.dumps({"kind": name, "at": at, "site": told.get("site"), "outcome": outcome, "wrong": found}), flush=True
            )
        survivor = forked(lambda: {**run(injection.Injection(0, lambda: None)), "records": readable()}, folder)
        print(json.dumps({"survivor": survivor}), flush=True)


def outcome_of(told: dict[str, Any]) -> str:
    if told["ended"]:
        return {78: "refused", -9: "killed"}.get(told["ended"], "ended")
    return "interrupted" if told.get("interrupted") else "armed" if told.get("armed") else "stock"


def readable() -> int:
    """How many records of ended processes are there, all of them read without an exception."""
    from attnfix.compat.status import process_record

    return sum(not record["alive"] for record in process_record.read_all())


if __name__ == "__main__":
    REQUEST.update(json.loads(sys.argv[1]))
    main()
