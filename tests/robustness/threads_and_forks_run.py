"""Many at once in one process, and many processes: `python threads_and_forks_run.py REQUEST`, REQUEST and answer as JSON."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faults_run
import small_engine
from children import forked, prepare_for, start

LIMIT_S = 300
REQUEST: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
SMALL = ("sglang.attention", "sglang.planning", "sglang.runner")


def load(names: tuple[str, ...] = SMALL) -> None:
    for name in names:
        importlib.import_module(name)


def look() -> dict[str, Any]:
    """What stands in this process after the small engine was imported, and what its record says of it."""
    import sglang.attention as attention

    import attnfix
    from attnfix.compat.arming.wrapper import WrappedTarget
    from attnfix.compat.status import process_record

    seen = small_engine.use()
    wrapper = WrappedTarget.of(vars(attention.Backend)["forward"])
    own = [record for record in process_record.read_all() if record["pid"] == os.getpid()]
    inside = {row["fix"]: [row["state"], row["counters"]] for row in attnfix.status()}
    outside = [{row["fix"]: [row["state"], row["counters"]] for row in record["fixes"]} for record in own]
    finders = [finder for finder in sys.meta_path if type(finder).__module__ == "attnfix.bootstrap.import_hook"]
    wrong = []
    if not seen.armed:
        wrong.append(f"not wholly armed: {list(seen)}")
    if wrapper is None or WrappedTarget.of(wrapper.wrapped) is not None or len(wrapper.links) != 2:
        wrong.append("wrapped more than once")
    if len(finders) != 1:
        wrong.append(f"{len(finders)} finders")
    if outside != [inside]:
        wrong.append(f"its record is not what stands in it: {outside}, {inside}")
    return {"wrong": wrong}


def threads() -> dict[str, Any]:
    """`count` threads import all modules at once, in orders of their own, and activate and ask for the status meanwhile."""
    import attnfix

    dice, errors = random.Random(REQUEST["seed"]), []
    barrier = threading.Barrier(REQUEST["count"])
    names = REQUEST["modules"] or list(SMALL)

    def one(order: list[str], also: list[Callable[[], Any]]) -> None:
        try:
            barrier.wait(60)
            for name in order:
                importlib.import_module(name)
                for step in also:
                    step()
        except BaseException as error:
            if not pythons_own(error):
                errors.append(f"{type(error).__name__}: {error}")

    crowd = [
        threading.Thread(
            target=one,
            args=(dice.sample(names, len(names)), dice.sample([attnfix.activate, attnfix.status], dice.randint(0, 2))),
            daemon=True,
        )
        for _ in range(REQUEST["count"])
    ]
    sys.setswitchinterval(dice.choice([1e-6, 1e-5, 5e-3]))
    for thread in crowd:
        thread.start()
    until = time.monotonic() + LIMIT_S
    for thread in crowd:
        thread.join(max(0.0, until - time.monotonic()))
    stuck = sum(thread.is_alive() for thread in crowd)
    sys.setswitchinterval(5e-3)
    if stuck:
        return {"wrong": [f"{stuck} threads hang"]}
    if REQUEST["on"] == "real":
        return {**look_real(), "errors": sorted(set(errors))}
    return {"wrong": [*errors[:3], *look()["wrong"]]}


def pythons_own(error: BaseException) -> bool:
    """Importlib looks a parent up in `sys.modules` in the moment in which another thread's import of it ends: stock, too."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, KeyError) and frame.filename == "<frozen importlib._bootstrap>"


def look_real() -> dict[str, Any]:
    from attnfix.bootstrap import process

    if os.environ.get("ATTNFIX") == "0":
        return {"wrong": []}
    states = process.activation().states
    rows = {row["fix"]: row["state"] for row in process.activation().rows()}
    wrong = [f"{state.fix.id} is half armed" for state in states.values() if faults_run.half(state)]
    return {"wrong": wrong + [f"{fix} is {rows[fix]}" for fix in REQUEST["expected"] if rows[fix] != "installed"]}


def real_child() -> dict[str, Any]:
    load(tuple(REQUEST["modules"]))
    return look_real()


def spawned(answer: str) -> None:
    """A child of `multiprocessing`, by whatever method."""
    try:
        if REQUEST["on"] == "real":
            prepare_for(REQUEST["engine"])
            told = real_child()
        else:
            small_engine.put_in_place(Path(REQUEST["folder"]))
            load()
            told = look()
    except BaseException as error:
        told = {"wrong": [f"{type(error).__name__}: {error}"]}
    Path(answer).write_text(json.dumps({**told, "pid": os.getpid()}))


def by_multiprocessing(method: str, folder: Path) -> list[dict[str, Any]]:
    """`count` children, at most `alive` at a time."""
    context = multiprocessing.get_context(method)
    todo = [folder / f"{method}-{number}.json" for number in range(REQUEST["count"])]
    running: list[tuple[Any, Path, float]] = []
    told = []
    while todo or running:
        while todo and len(running) < REQUEST["alive"]:
            answer = todo.pop()
            child = context.Process(target=spawned, args=(str(answer),))  # type: ignore[attr-defined]
            child.start()
            running.append((child, answer, time.monotonic()))
        time.sleep(0.005)
        for entry in list(running):
            child, answer, began = entry
            if child.is_alive() and time.monotonic() - began < LIMIT_S:
                continue
            running.remove(entry)
            if child.is_alive():
                child.kill()
                told.append({"wrong": ["hangs"], "pid": child.pid})
            elif answer.exists():
                told.append(json.loads(answer.read_text()))
            else:
                told.append({"wrong": [f"ended with {child.exitcode}, no answer"], "pid": child.pid})
    return told


def by_fork(folder: Path) -> list[dict[str, Any]]:
    """`count` children of a parent that has loaded what the engine needs, at most `alive` at a time."""
    waiting, told = [], []
    for number in range(REQUEST["count"]):
        waiting.append(start(real_child, folder, f"fork-{number}"))
        if len(waiting) == REQUEST["alive"]:
            told.append(waiting.pop(0)(LIMIT_S))
    told += [wait(LIMIT_S) for wait in waiting]
    return [{**answer, "wrong": answer.get("wrong", [answer.get("error")])} for answer in told]


def strange_records(pids: list[int]) -> list[str]:
    """Each child has left one record, of its own, and is known to have ended."""
    from attnfix.compat.status import process_record

    found = [record for record in process_record.read_all() if record["pid"] in pids]
    wrong = [] if sorted(record["pid"] for record in found) == sorted(pids) else [f"{len(found)} records of {len(pids)}"]
    return wrong + [f"the record of {record['pid']} says it lives" for record in found if record["alive"]]


def initialise_cuda() -> bool:
    """As the parent of an engine's workers may have, where a GPU is there."""
    if not Path("/dev/nvidiactl").exists():
        return False
    import torch

    torch.zeros(1, device="cuda")
    return torch.cuda.is_initialized()


def main() -> dict[str, Any]:
    real = REQUEST["on"] == "real"
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        folder = Path(scratch)
        os.environ["ATTNFIX_RUN_DIR"] = str(folder / "run")
        if REQUEST["method"] != "spawn":
            if real:
                prepare_for(REQUEST["engine"])
            else:
                small_engine.put_in_place(Path(REQUEST["folder"]))
        if REQUEST["method"] == "threads":
            told = forked(threads, folder, LIMIT_S + 30)
            return {"tried": 1, "wrong": told.get("wrong", [str(told)]), "errors": told.get("errors", [])}
        cuda = REQUEST["method"] == "loaded" and initialise_cuda()
        if REQUEST["method"] == "loaded":  # forked from a parent that serves
            load()
            small_engine.use()
        if real and REQUEST["method"] == "fork":
            told_all = by_fork(folder)
        else:
            told_all = by_multiprocessing("spawn" if REQUEST["method"] == "spawn" else "fork", folder)
        wrong = [f"child {told['pid']}: {sentence}" for told in told_all for sentence in told["wrong"]]
        wrong += strange_records([told["pid"] for told in told_all])
        return {"tried": len(told_all), "wrong": wrong, "cuda": cuda}


if __name__ == "__main__":
    print("\n" + json.dumps(main()), flush=True)
