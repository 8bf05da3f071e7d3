"""Runs Python in forks of one that has imported torch: most of an engine's import is the import of other packages.

    with Warm(sys.executable, environment) as warm:
        warm.run(["-c", code], env=…, cwd=…, timeout=…)    as subprocess.run([python, "-c", code], …) would

The parent is started as any Python, so its `.pth` files have been processed; it imports no engine, and of attnfix what its
`.pth` brings. A fork then reads its own switches and imports engine and attnfix as a new process does. An interpreter's start,
or another environment of torch's, is not tried in a fork; `make matrix` starts fresh ones.

The parent has one thread, no CUDA context and nothing of Triton's interpreter in use: none of these survives a fork.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

#: What both engines import and takes longest, in the order of cost
HEAVY = (
    "torch", "torch._inductor.compile_fx", "torch.distributed.tensor", "transformers.modeling_utils",
    "transformers.processing_utils", "transformers.models.auto", "triton", "fastapi", "aiohttp", "openai", "IPython",
    "numpy", "PIL.Image", "requests", "zmq",
)  # fmt: skip
#: Variables that a run may have otherwise than the parent: nothing of HEAVY reads them
_FREE = ("ATTNFIX", "SGLANG", "VLLM", "PYTHONPATH", "PYTEST")


class Warm:
    """A parent that waits, under `env` without PYTHONPATH; any thread may run something. Close it, or leave its `with`.

    It has imported the first of `modules`, and of the others those that can be imported. RuntimeError: it cannot be forked.
    """

    def __init__(self, python: str, env: Mapping[str, str], modules: Sequence[str] = HEAVY):
        self.env = {name: value for name, value in env.items() if name != "PYTHONPATH"}
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self._address = str(Path(self._folder.name) / "socket")
        command = [python, __file__, self._address, *modules]
        self._parent = subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._parent.stdout is not None
        if (said := self._parent.stdout.readline()) != "ready\n":
            self.close()
            raise RuntimeError(f"{python} cannot be forked: {said.strip() or 'it ended during its imports'}")

    def run(
        self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: str | Path, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """`arguments` are Python's: -c CODE or -m MODULE, and what follows. Raises subprocess.TimeoutExpired, and
        ValueError for an environment that the parent's imports would have had to see."""
        names = {name for name in {*env, *self.env} if env.get(name) != self.env.get(name) and not name.startswith(_FREE)}
        if names:
            raise ValueError(f"the parent was started with other values of {', '.join(sorted(names))}")
        request = json.dumps({"arguments": list(arguments), "env": dict(env), "cwd": str(cwd)})
        with (
            tempfile.TemporaryFile("w+") as asked,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
            socket.socket(socket.AF_UNIX) as connection,
        ):
            asked.write(request)
            asked.flush()
            connection.connect(self._address)
            socket.send_fds(connection, [b"."], [file.fileno() for file in (asked, out, err)])
            answer = connection.makefile()
            pid = int(answer.readline())
            connection.settimeout(timeout)
            try:
                code = int(answer.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, out.read(), err.read())

    def close(self) -> None:
        self._parent.communicate()  # the parent ends with its standard input
        self._folder.cleanup()

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def proofs() -> Iterator[None]:
    """Within it, the sides of proofs run in forks."""
    from attnfix.prove import runner  # the parent must not have it

    fresh, env = runner.start, {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    with Warm(sys.executable, env | runner.CPU) as warm:
        runner.start = warm.run
        try:
            yield
        finally:
            runner.start = fresh


def serve(address: str) -> dict[str, Any] | None:
    """Wait for runs. Returns twice: in a fork, what it is to run; in the parent None, at the end."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that attend
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            return attend(connection)
        connection.close()
    return None


def attend(connection: socket.socket) -> dict[str, Any]:
    """Fork once more and stay behind to tell the end; only the fork returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, (asked, out, err), *_ = socket.recv_fds(connection, 1, 3)
    if pid := os.fork():
        connection.sendall(f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(f"{code}\n".encode())
        os._exit(0)
    connection.close()
    os.lseek(asked, 0, os.SEEK_SET)
    with open(asked) as file:
        request: dict[str, Any] = json.load(file)
    for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
        os.dup2(stream, number)
        os.close(stream)
    return request


def become(request: dict[str, Any]) -> None:
    """Be the interpreter that was asked for: its environment, folder, path, arguments and program, to its end."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # else every fork draws the same numbers
    flag, program, *rest = request["arguments"]
    first = "" if flag == "-c" else request["cwd"]
    sys.path[:0] = [first, *filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv[:] = [flag, *rest]
    code = 0
    try:
        if flag == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), vars(main))  # nosec B102: as `python -c` does
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # to take torch down costs half a second


def threads() -> int:
    """Of this process, those of libraries included."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


if __name__ == "__main__":
    del sys.path[0]
    try:
        importlib.import_module(sys.argv[2])
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(1)
    for name in sys.argv[3:]:
        with suppress(Exception):  # an engine may do without it; its own import says what is wrong
            importlib.import_module(name)
    if (count := threads()) > 1:
        print(f"its imports have started {count - 1} threads", flush=True)
        sys.exit(1)
    gc.freeze()  # a collection in a fork would walk, and so copy, all of it
    if request := serve(sys.argv[1]):
        become(request)
    os._exit(0)
