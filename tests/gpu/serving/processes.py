"""Engines in processes of their own: `Server` is asked through pipes, `Http` is the engine's own server."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.gpu.serving.child import RENAMED

HERE = Path(__file__).parent
#: On every side: the installed attnfix and not the source folder, no network, no counting of usage
_ENVIRONMENT = {"PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
#: vLLM: the engine core is a process of its own, by spawn; no sampler that FlashInfer would have to compile
VARIABLES = {
    "vllm": {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
             "VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NO_USAGE_STATS": "1"},
    "sglang": {},
}  # fmt: skip
LIMIT_S = 550  # for the life of one server
_ENGAGED = ("installed", "effective", "failed", "conflict", "late", "pending", "unknown source")


class Ended(RuntimeError):
    """A server that did not start, did not answer, or is gone; its text says why."""


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without switches of attnfix; with `variables` on top."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    return ours | _ENVIRONMENT | variables


class Process:
    """One process and all of its children, with a log and a folder of attnfix's records; started at once.

    folder: where its log and its records go. variables: its environment, beside this process's. answers: whether its standard
    output is read here; else it goes to the log, too. limit_s: how long it may live."""

    def __init__(
        self, command: list[str], name: str, folder: Path, variables: dict[str, str], answers: bool = False,
        limit_s: float = LIMIT_S,
    ):  # fmt: skip
        self.name, self.log = name, folder / f"{name}.log"
        records = folder / f"{name}-records"
        shutil.rmtree(records, ignore_errors=True)
        records.mkdir(mode=0o700, parents=True)
        self.environment = environment(ATTNFIX_RUN_DIR=str(records), **variables)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE if answers else log, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
        self.live(limit_s)

    def live(self, seconds: float) -> None:
        """So long from now on, and no longer."""
        if hasattr(self, "_limit"):
            self._limit.cancel()
        self._limit = threading.Timer(seconds, self._kill)
        self._limit.daemon = True
        self._limit.start()

    @property
    def said(self) -> str:
        """Its log."""
        return self.log.read_text(errors="replace")

    def status(self) -> list[dict[str, Any]]:
        """`engaged` of each process with a record, while they run."""
        command = [sys.executable, "-m", "attnfix", "status", "--json"]
        # Its exit code is not asked: what is missing is in the answer
        told = json.loads(subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout)
        return [engaged(process) for process in told["processes"]]

    def close(self) -> None:
        """End the process and all of its children."""
        self._limit.cancel()
        with suppress(BrokenPipeError, OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        self._end()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=20)
        self._kill()
        self.process.wait()

    def _end(self) -> None:
        self.process.terminate()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Server(Process):
    """An engine in a process of its own. command: what runs `child.serve`. wrong: sentences about what did not hold in it."""

    def __init__(self, command: Sequence[str], name: str, folder: Path, variables: dict[str, str], limit_s: float = LIMIT_S):
        super().__init__(list(command), name, folder, variables, answers=True, limit_s=limit_s)
        self.settings: dict[str, Any] = {}
        self.wrong: list[str] = []

    def start(self, **settings: Any) -> dict[str, Any]:
        """Start the engine; how many seconds that took, and what it runs on. Raises Ended."""
        self.settings = settings
        return self.do("start", **settings)

    def do(self, action: str, **request: Any) -> dict[str, Any]:
        """The answer of the child's method `action`. Raises Ended."""
        line = ""
        with suppress(BrokenPipeError):
            print(json.dumps({"do": action, **request}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()  # type: ignore[union-attr]
        answer = json.loads(line) if line else {"error": f"the process ended with {self.process.wait()}"}
        if "error" in answer:
            raise Ended(f"{action}: {answer['error']}")
        return answer

    def answers(self, prompts: list[list[int]], **how: Any) -> list[dict[str, Any]]:
        """`child.Child.answer`."""
        return self.do("answer", prompts=prompts, **how)["answers"]

    def answer(self, prompt: list[int], **how: Any) -> dict[str, Any]:
        """The answer to one prompt."""
        return self.answers([prompt], **how)[0]

    def forget(self) -> None:
        """Empty the prefix cache."""
        self.do("forget")

    def expect(self, holds: bool, sentence: str) -> None:
        """Note what a case needs of its server, and does not find."""
        if not holds and sentence not in self.wrong:
            self.wrong.append(sentence)

    def _end(self) -> None:
        """A child ends by itself with its standard input."""


def child(engine: str) -> list[str]:
    """The command of an engine's child."""
    return [sys.executable, str(HERE / "child.py"), engine]


class Http(Process):
    """launch: what follows `python`, with `{port}` in it. The constructor returns when the server is up, or raises Ended."""

    def __init__(self, launch: list[str], name: str, folder: Path, variables: dict[str, str], start_s: float = 600):
        self.address = f"http://127.0.0.1:{_free_port()}"
        port = self.address.rpartition(":")[2]
        super().__init__([sys.executable, *(word.replace("{port}", port) for word in launch)], name, folder, variables)
        until = time.monotonic() + start_s
        while not self._is_up():
            if self.process.poll() is not None or time.monotonic() > until:
                self.close()
                raise Ended(f"{name}: the server did not start: {[*errors(self.said), 'no exception in its log'][0]}")
            time.sleep(0.5)

    def _is_up(self) -> bool:
        try:
            self.get("/health")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=120) as response:  # nosec B310: http on this machine
            return response.read().decode()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:  # nosec B310
            return json.loads(response.read())


_LAUNCH = {
    "vllm": ["-m", "vllm.entrypoints.openai.api_server", "--model", "{model}", "--served-model-name", "tiny"],
    "sglang": ["-m", "sglang.launch_server", "--model-path", "{model}", "--enable-metrics"],
}


def launch(engine: str, model: Path | str, settings: dict[str, Any]) -> list[str]:
    """The line that `Http` starts. An object among the settings is JSON there; settings have the names of this release."""
    if engine == "sglang":
        from sglang.srt.server_args import ServerArgs

        settings = {RENAMED[name] if hasattr(ServerArgs, RENAMED.get(name, "-")) else name: to for name, to in settings.items()}
    words = [word.replace("{model}", str(model)) for word in _LAUNCH[engine]]
    words += ["--skip-tokenizer-init", "--host", "127.0.0.1", "--port", "{port}"]
    for name, value in settings.items():
        flag, told = f"--{name.replace('_', '-')}", json.dumps(value) if isinstance(value, dict) else str(value)
        words += [] if value is False else [flag] if value is True else [flag, told]
    return words


def _free_port() -> int:
    """Below where the system takes its own from: sglang adds 10000 to it for a second one."""
    for port in random.sample(range(20000, 30000), 50):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise Ended("no free port between 20000 and 30000")


def plugin(source: Path, folder: Path) -> Path:
    """Lay a plugin of vLLM, a module with `install`, out under `folder` as an installed package; the folder for the path."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / source.name)
    name = f"attnfix-test-{source.stem.replace('_', '-')}"
    about = folder / f"{name.replace('-', '_')}-0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {source.stem}:install\n")
    return folder


# What processes say of attnfix


def engaged(process: dict[str, Any]) -> dict[str, Any]:
    """A process of `attnfix status --json` in short. fixes: {id: state, reason, counters, code} of those that are at work or
    should be; others: how many fixes have each other state; kernels: which path served attnfix's own."""
    fixes: dict[str, Any] = {}
    others: dict[str, int] = {}
    for row in process["fixes"]:
        if row["state"] in _ENGAGED:
            fixes[row["fix"]] = {name: row[name] for name in ("state", "reason", "code")} | row["counters"]
        else:
            others[row["state"]] = others.get(row["state"], 0) + 1
    kernels = {name: op["path"] for name, op in process.get("kernels", {}).items() if op["path"] != "unused"}
    return {"process": process["pid"], "alive": process["alive"], "fixes": fixes, "others": others, "kernels": kernels}


def corrections(processes: list[dict[str, Any]]) -> dict[str, int]:
    """{fix: how often it has corrected, in all processes}, of those that have."""
    found: dict[str, int] = {}
    for process in processes:
        for fix, row in process["fixes"].items():
            if row["corrections"]:
                found[fix] = found.get(fix, 0) + row["corrections"]
    return found


def alive(processes: list[dict[str, Any]]) -> bool:
    """Whether every process that has called a fix lives. Others may have ended: vLLM looks at a model's class in one."""
    return all(process["alive"] for process in processes if any(row["calls"] for row in process["fixes"].values()))


def errors(said: str) -> list[str]:
    """The exceptions that a log tells of, with their texts."""
    lines = said.replace("\r", "")  # a progress bar's terminal ends lines with both
    return re.findall(r"(?<!raise )\b\w+Error(?:: .+|$)", lines, re.MULTILINE)


def gpus() -> int:
    """How many this machine has. Does not initialise CUDA."""
    with suppress(FileNotFoundError):
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
        return len(listed.splitlines())
    return 0
