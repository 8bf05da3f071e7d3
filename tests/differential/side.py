"""One side of a differential run: `python -m tests.differential.side ENGINE SITE`. Requests and answers are lines of JSON.

It imports the engine once, then runs each case in a fork of its own, so that nothing of a case is there for the next, and a
case that hangs or dies ends nothing else. Nothing here patches: the installed `.pth` does, or with ATTNFIX=0 nobody.

A request is {"case": …, "seconds": limit of time} and may have "mutation": a way to break this harness, "sabotage": a way to
break the corrections (`_SABOTAGES`, or a fault that a correction once had: `FAULTS` of the engine's server), "record": how many
launches of stand-ins to keep of each kind (`recorder`), "branches": whether to measure which are entered (`branches`), or
"only": the fixes that are on, those of them that stand.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

from . import interpreter
from .protocol import Answer, Failure, Refused

_MEMORY = 16 << 30
#: To stand aside from a run: not of the engine, and not of attnfix
_OURS = (f"{os.sep}tests{os.sep}differential{os.sep}", f"{os.sep}lab{os.sep}")


def main(engine: str, site: str) -> None:
    from attnfix.prove import side, stubs

    _die_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the engine prints is no answer
    stubs.install(engine)
    side._ease_engine(engine)
    server: Any = importlib.import_module(f"tests.differential.{engine}.server")
    server.load()
    package = sys.modules[engine]
    if site and not str(package.__path__[0]).startswith(site):
        raise ImportError(f"{engine} was imported from {package.__path__[0]}, not from {site}")
    interpreter.speed_up()
    warm, known = False, set()
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        if not warm:  # what a first case imports late, every fork would import again
            plain = {name: value for name, value in request.items() if name in ("case", "seconds")}
            for name in _in_a_fork(partial(_imported_by, server, plain), 600)[1] or ():
                _tried_import(name)
            stubs.freeze()
            gc.collect()
            gc.freeze()
            warm = True
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="case-") as folder:  # models, sockets
            ended, answer = _in_a_fork(partial(_run_in, folder, server, request), request["seconds"])
        answer = answer or {"ended": ended, "steps": []}
        new = {tuple(one) for one in answer.pop("rewritten", ())} - known
        interpreter.rewrite(new)
        known |= new
        print(json.dumps({**answer, "seconds": round(time.monotonic() - began, 3)}), file=answers)


def _imported_by(server: Any, request: dict[str, Any]) -> list[str]:
    before = set(sys.modules)
    _run(server, request)
    return [name for name in sys.modules if name not in before]


def _tried_import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception:  # a module that the engine itself tried in vain, or made by hand
        return


def _in_a_fork(work: Callable[[], Any], seconds: float) -> tuple[str, Any]:
    """("done", what `work` returned), or ("hung" or "died", None). It hangs after so many seconds of computing, or after ten
    times as many: on a busy machine it may have to wait."""
    import psutil

    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            _die_with_parent()
            os.close(reading)
            said = json.dumps(work())
            with os.fdopen(writing, "w") as pipe:
                pipe.write(said)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    child, said, limit, ended = psutil.Process(pid), b"", time.monotonic() + 10 * seconds, "died"
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            if not select.select([pipe], [], [], 1)[0]:
                times = child.cpu_times()
                if times.user + times.system < seconds and time.monotonic() < limit:
                    continue
                ended = "hung"
                os.kill(pid, signal.SIGKILL)
                break
            if not (piece := pipe.read(1 << 16)):
                break
            said += piece
    os.waitpid(pid, 0)
    return ("done", json.loads(said)) if said and ended == "died" else (ended, None)


def _die_with_parent() -> None:
    """Whoever is killed leaves nothing behind that computes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _run_in(folder: str, server: Any, request: dict[str, Any]) -> Answer:
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    before = interpreter.rewritten()
    answer: Any = _run(server, request)
    return answer | {"rewritten": sorted(interpreter.rewritten() - before)}  # type: ignore[no-any-return]


def _run(server: Any, request: dict[str, Any]) -> Answer:
    """In the fork."""
    import torch

    from attnfix.patches.lab import emulators

    case = request["case"]
    if "only" in request:
        _switch_off_but(request["only"])
    if (sabotage := request.get("sabotage")) in _SABOTAGES:
        _sabotage(sabotage)
    elif sabotage:
        server.FAULTS[sabotage]()
    # The engine collects garbage at every turn, over all that the parent has imported
    gc.disable()
    for name in ("collect", "freeze", "unfreeze"):
        setattr(gc, name, lambda *generation: 0)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # The same on both sides; what torch leaves undefined is NaN or the largest number
    torch.manual_seed(case["seed"])
    emulators._noise.manual_seed(case["seed"])
    torch.use_deterministic_algorithms(True, warn_only=True)
    mutation = server.MUTATIONS[request["mutation"]]() if request.get("mutation") else nullcontext()
    recorder = _recorder(case["engine"], request["record"]) if request.get("record") else None
    measured = _measured(case["engine"]) if request.get("branches") else nullcontext()
    before = _counted()
    answer: Answer = {"ended": "done", "steps": [], "corrected_by": {}}
    with mutation, measured:
        try:
            running = server.Server(case)
            _note(answer, before, -1)
            for number in range(case["steps"]):
                step = running.step()
                _note(answer, before, number)
                if step is None:
                    break
                answer["steps"].append(asdict(step))
        except Refused as refused:
            answer |= {"ended": "refused", "why": str(refused)}
        except Exception as error:
            answer |= {"ended": "raised", "error": _failure(error)}
            _note(answer, before, len(answer["steps"]))
            if request.get("verbose"):
                traceback.print_exc()
    after = _counted()
    answer["corrections"] = {fix: now[0] - before[fix][0] for fix, now in after.items() if now[0] > before[fix][0]}
    answer["effective"] = sorted(fix for fix, now in after.items() if now[1] > before[fix][1])
    answer["missing"] = _missing()
    if recorder:
        answer |= {"launches": recorder.kept.launches(), "skipped": recorder.kept.skipped}  # type: ignore[typeddict-unknown-key]
    if request.get("branches"):
        answer |= {"arcs": measured.arcs, "armed": _standing()}  # type: ignore[typeddict-unknown-key]
    return answer


def _measured(engine: str) -> Any:
    from .branches import Measured

    return Measured(engine, os.path.dirname(sys.modules[engine].__path__[0]))


def _standing() -> list[str]:
    import attnfix
    from attnfix.compat.status.fix_state import EFFECTIVE, INSTALLED

    return [row["fix"] for row in attnfix.status() if row["state"] in (EFFECTIVE, INSTALLED)]


def _recorder(engine: str, most: int) -> Any:
    from .recorder import Recorder

    return Recorder(importlib.import_module(f"tests.differential.{engine}.entry_points").ENTRY_POINTS, most)


def _counted() -> dict[str, tuple[int, int]]:
    """fix -> (corrections, calls of its targets while armed)."""
    import attnfix

    return {row["fix"]: (row["counters"]["corrections"], row["counters"]["calls"]) for row in attnfix.status()}


def _missing() -> dict[str, str]:
    import attnfix
    from attnfix.compat.status.fix_state import MISSING

    return {row["fix"]: row["state"] for row in attnfix.status() if row["state"] in MISSING}


def _note(answer: Answer, before: dict[str, tuple[int, int]], step: int) -> None:
    """Of each fix the first step that it corrected something in."""
    for fix, now in _counted().items():
        if now[0] > before[fix][0]:
            answer["corrected_by"].setdefault(fix, step)


def _failure(error: Exception) -> Failure:
    """Where it was raised: the innermost function that is not ours and not torch's."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not any(part in frame.filename for part in _OURS) and f"{os.sep}torch{os.sep}" not in frame.filename:
            where = f"{os.sep.join(frame.filename.rsplit(os.sep, 3)[1:])}:{frame.name}:{frame.lineno}"
    return {"type": type(error).__name__, "message": str(error)[:300], "where": where}


def _switch_off_but(fixes: list[str]) -> None:
    """In this process, modules that it has yet to import included."""
    from attnfix.bootstrap.process import activation
    from attnfix.compat.status.fix_state import OFF

    for state in activation().states.values():
        if state.fix.id not in fixes:
            os.environ[state.fix.switch] = "0"
            state.settle(OFF, "another one is tried alone")
            activation()._withdraw(state)


# Ways to break the corrections of every fix: a run that sees none of them proves nothing


def _nothing(act: Any) -> Any:
    def counted_only(call: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        result = call()
        call.corrected()
        return result

    return counted_only


def _spoil(act: Any) -> Any:
    def spoilt(call: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return _worse(act(call, instance, args, kwargs))

    return spoilt


def _worse(result: Any) -> Any:
    import torch

    if isinstance(result, torch.Tensor) and result.is_floating_point():
        return result.mul_(3)
    if isinstance(result, tuple):
        return tuple(map(_worse, result))
    for name in ("seq_lens", "query_start_loc"):
        if isinstance(value := getattr(result, name, None), torch.Tensor):
            value.clamp_(max=1)
    return result


def _spoil_alone(act: Any) -> Any:
    return _spoil(lambda call, instance, args, kwargs: call())


_SABOTAGES = {"corrections do nothing": _nothing, "corrections spoil": _spoil}
#: At every call, whether or not the fix needs to correct it
_SABOTAGES |= (_ANYWHERE := {"corrections count anywhere": _nothing, "corrections spoil anywhere": _spoil_alone})


def _sabotage(name: str) -> None:
    from attnfix.compat.arming.wrapper import Correction

    gc.unfreeze()
    for link in [found for found in gc.get_objects() if type(found) is Correction]:
        link.act = _SABOTAGES[name](link.act)
        link.look = None if name in _ANYWHERE else link.look


if __name__ == "__main__":
    main(*sys.argv[1:])
