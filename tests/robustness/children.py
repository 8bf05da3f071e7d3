"""Children of one process, by fork: their answers, how they ended, and a time limit that nothing escapes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Exit status of a child that had to be ended after the time limit
TOO_LONG = -1000


def forked(run: Callable[[], dict[str, Any]], folder: Path, limit_s: float = 60) -> dict[str, Any]:
    """Run in a child; its answer, with how it `ended` and the `lines` of attnfix on its standard error."""
    started = start(run, folder)
    return started(limit_s)


def start(run: Callable[[], dict[str, Any]], folder: Path, name: str = "answer") -> Callable[[float], dict[str, Any]]:
    """Fork now; what is returned waits for the child and gives its answer."""
    answer, said = folder / f"{name}.json", folder / f"{name}.txt"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            answer.write_text(json.dumps(run()))
            os._exit(0)
        except BaseException as error:
            answer.write_text(json.dumps({"error": f"the harness: {type(error).__name__}: {error}"}))
            os._exit(99)

    def wait(limit_s: float) -> dict[str, Any]:
        ended = _wait(child, limit_s)
        told = json.loads(answer.read_text()) if answer.exists() else {}
        lines = [line for line in said.read_text().splitlines() if "attnfix: " in line] if said.exists() else []
        return {**told, "ended": ended, "lines": lines, "pid": child}

    return wait


def _wait(child: int, limit_s: float) -> int:
    """Exit status, or minus the signal."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TOO_LONG


def prepare_for(engine: str) -> None:
    """Import what `engine` imports and is not the engine, so that children need not."""
    from attnfix.prove import stubs

    stubs.install(engine)
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
