"""Engines served in processes of their own, and what the gpu_e2e scripts compare: log-probabilities, tokens, speed, records.

`Server` is an engine's child process: it answers requests that come as JSON lines, one at a time. `serve` is the other end. The
engine's own children (vLLM's engine core, sglang's scheduler) are children of that process, so whether attnfix reaches them is
part of every run. `write` merges a case into the evidence file of its GPU and release.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from scripts.evidence.summaries import short_gpu

TOP = 20  # tokens compared of each answer
LISTED = 200  # log-probabilities asked for
STOCK, PATCHED = "stock", "patched"
#: On every side: the installed attnfix and not the source folder, no network, no counting of usage
_ENVIRONMENT = {"PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
LIMIT_S = 550  # for the life of one server: a run that hangs must end before whoever waits for it gives up
_began = time.monotonic()
_engaged = ("installed", "effective", "failed", "conflict", "late", "pending", "unknown source")


def say(sentence: str) -> None:
    """Progress, with the seconds since the script began."""
    print(f"[{elapsed():4.0f} s] {sentence}", flush=True)


def elapsed() -> float:
    """Seconds since the script began."""
    return time.monotonic() - _began


# The servers


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without switches of attnfix; with `variables` on top."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    return ours | _ENVIRONMENT | variables


class Process:
    """One process and all of its children, with a log and a folder of attnfix's records; started at once.

    command: what runs. folder: where its log, its records and whatever else it writes go. variables: its environment, beside
    this process's. answers: whether its standard output is read here; else it goes to the log, too. limit_s: how long it may
    live.
    """

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
        self._limit = threading.Timer(limit_s, self._kill)
        self._limit.daemon = True
        self._limit.start()

    def tail(self, lines: int) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def status(self) -> list[dict[str, Any]]:
        """What `attnfix status --json` says of each process with a record, while they run: [{"process", "alive", "fixes"}].

        fixes: {id: state, reason, counters, code} of those that are at work or should be; `others` counts states of the rest.
        """
        command = [sys.executable, "-m", "attnfix", "status", "--json"]
        # Its exit code is not asked: what is missing is in the answer
        told = json.loads(subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout)
        return [engaged(process) for process in told["processes"]]

    def close(self) -> None:
        """End the child and all of its children."""
        self._limit.cancel()
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


def _command(script: Sequence[str]) -> list[str]:
    """A module of this folder is found behind what is installed: the source folder has an attnfix, too."""
    if script[0] != "-m":
        return [sys.executable, *script]
    root = str(Path(__file__).resolve().parents[2])
    code = f"import runpy, sys; sys.path.append({root!r}); runpy.run_module({script[1]!r}, run_name='__main__')"
    return [sys.executable, "-c", code, *script[2:]]


class Server(Process):
    """One engine in a process of its own that runs `script`, say ("-m", module): it calls `serve`, `ask` waits for answers."""

    def __init__(self, script: Sequence[str], name: str, folder: Path, variables: dict[str, str], limit_s: float = LIMIT_S):
        super().__init__(_command(script), name, folder, variables, answers=True, limit_s=limit_s)

    def ask(self, do: str, may_fail: bool = False, **request: Any) -> dict[str, Any]:
        """The answer of the child's action `do`. An error ends the script with the log's last lines, unless it `may_fail`:
        then it is the answer, {"error": …}."""
        line = ""
        with suppress(BrokenPipeError):
            print(json.dumps({"do": do, **request}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()  # type: ignore[union-attr]
        answer = json.loads(line) if line else {"error": f"the process ended with {self.process.wait()}"}
        if "error" in answer and not may_fail:
            self.close()
            raise SystemExit(f"{self.name}: {do}: {answer['error']}\n{self.tail(40)}")
        return answer

    def _end(self) -> None:
        with suppress(BrokenPipeError, OSError):
            self.process.stdin.close()  # type: ignore[union-attr]


def cold_and_cached(server: Server, prompt: list[int]) -> dict[str, Any]:
    """Answers to a prompt: {"cold": with nothing cached, "cached": with its first half cached}."""
    server.ask("forget")
    cold = server.ask("answer", prompt=prompt)
    server.ask("forget")
    server.ask("answer", prompt=prompt[: len(prompt) // 2])
    return {"cold": cold, "cached": server.ask("answer", prompt=prompt)}


def serve(actions: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """The child's end: do what comes as JSON lines on standard input until there is no more. What the engine and its children
    print goes to standard error, which is the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = actions[request.pop("do")](**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


# What processes say of attnfix


def engaged(process: dict[str, Any]) -> dict[str, Any]:
    """One process's record in short; see `Server.status`. kernels: which path served attnfix's own."""
    fixes: dict[str, Any] = {}
    others: dict[str, int] = {}
    for row in process["fixes"]:
        if row["state"] in _engaged:
            fixes[row["fix"]] = {name: row[name] for name in ("state", "reason", "code")} | row["counters"]
        else:
            others[row["state"]] = others.get(row["state"], 0) + 1
    kernels = {name: op["path"] for name, op in process.get("kernels", {}).items() if op["path"] != "unused"}
    return {"process": process["pid"], "alive": process["alive"], "fixes": fixes, "others": others, "kernels": kernels}


def corrections(processes: list[dict[str, Any]], fix: str) -> int:
    """How often a fix has corrected, in all processes in which it is at work."""
    rows = [process["fixes"].get(fix, {}) for process in processes]
    return sum(row["corrections"] for row in rows if row.get("state") == "effective")


def alive(processes: list[dict[str, Any]]) -> bool:
    """Whether every process that has called a fix lives. Others may have ended: vLLM looks at a model's class in one."""
    return all(process["alive"] for process in processes if any(row["calls"] for row in process["fixes"].values()))


def machine_of(sides: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Takes out of each side what it ran on, and returns it; a server that did not start has none."""
    return next(iter([side.pop("machine") for side in sides.values() if "machine" in side]))


def activity(processes: list[dict[str, Any]]) -> list[str]:
    """One line for each fix that stands in some process."""
    return [
        f"{fix}: {row['state']}, {row['corrections']} corrections in {row['calls']} calls (process {process['process']})"
        for process in processes
        for fix, row in process["fixes"].items()
    ]


def errors(said: str) -> list[str]:
    """The exceptions that a log tells of, with their texts."""
    lines = said.replace("\r", "")  # a progress bar's terminal ends lines with both
    return re.findall(r"(?<!raise )\b\w+Error(?:: .+|$)", lines, re.MULTILINE)


# The comparisons


def compare(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Two answers, {"tokens": […], "logprobs": {token: log-probability of the first new one}}, to one request: largest
    difference of a log-probability over the TOP tokens of `a`, how many of them are also among those of `b`, and how many new
    tokens are equal before the first that is not.

    A token that `b` does not list is less probable than all it lists: the difference is then a lower bound. Where a
    log-probability is not a number, the difference is infinite.
    """
    best = [sorted(side["logprobs"], key=side["logprobs"].get, reverse=True)[:TOP] for side in (a, b)]
    floor = min(b["logprobs"].values())
    differences = [abs(a["logprobs"][token] - b["logprobs"].get(token, floor)) for token in best[0]]
    difference = max(differences) if all(map(math.isfinite, differences)) else math.inf
    equal = [x == y for x, y in zip(a["tokens"], b["tokens"])] + [False]
    return {"difference": difference, "in_common": len(set(best[0]) & set(best[1])), "equal_tokens": equal.index(False)}


def worst(compared: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several comparisons as one: the worst of each figure."""
    return {
        "difference": max(one["difference"] for one in compared),
        "in_common": min(one["in_common"] for one in compared),
        "equal_tokens": min(one["equal_tokens"] for one in compared),
    }


def distance(logprobs: Mapping[str, float], right: Mapping[str, float]) -> float:
    """Root mean square of the differences, of the tokens that both list."""
    both = logprobs.keys() & right.keys()
    return rms(logprobs[token] - right[token] for token in both) if both else math.inf


def rms(values: Iterable[float]) -> float:
    """Root mean square."""
    return math.sqrt(statistics.fmean(value**2 for value in values))


def same_bits(answers: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[bool]:
    """Which prompts, with nothing cached, have equal log-probabilities to the bit; both as of `cold_and_cached`."""
    return [one["cold"]["logprobs"] == other["cold"]["logprobs"] for one, other in zip(answers, others)]


#: Student's t at 97.5 % for 1, 2, … degrees of freedom
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
    2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def ratio(patched: Sequence[float], stock: Sequence[float]) -> dict[str, Any]:
    """Mean ratio patched / stock of measurements taken in pairs, and its 95 % interval: a paired t interval of logarithms."""
    logs = [math.log(p / s) for p, s in zip(patched, stock, strict=True)]
    mean, half = statistics.fmean(logs), math.inf
    if len(logs) > 1:
        half = _T[min(len(logs) - 1, len(_T)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half) if half < math.inf else math.inf
    return {"ratio": math.exp(mean), "low": low, "high": high, "pairs": len(logs)}


# Evidence


def machine(engine: str) -> dict[str, Any]:
    """What this process runs on. Initialises CUDA: for a child, after its engine has started."""
    import importlib
    from importlib.metadata import PackageNotFoundError, version

    import torch

    found: dict[str, Any] = {"engine": engine, "release": importlib.import_module(engine).__version__}
    for package in ("attnfix", "flashinfer-python", "triton", "transformers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    if shutil.which("nvidia-smi"):
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found["driver"] = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")[0]
    return found | {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }  # fmt: skip


def gpus() -> int:
    """How many this machine has. Does not initialise CUDA."""
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
    return len(listed.splitlines())


def write(folder: Path, about: dict[str, Any], case: str, result: dict[str, Any]) -> Path:
    """Put a case into `folder`/e2e-<gpu>-<engine>-<release>.json, beside the cases that are there. Numbers that JSON has no
    word for become null."""
    path = folder / f"e2e-{short_gpu(about['gpu']).lower()}-{about['engine']}-{about['release']}.json"
    folder.mkdir(parents=True, exist_ok=True)
    former = json.loads(path.read_text()) if path.exists() else {}
    whole = {**about, "cases": former.get("cases", {}) | {case: {**result, "machine": about}}}
    path.write_text(json.dumps(_finite(whole), indent=1) + "\n")
    return path


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parser(description: str | None, cases: Sequence[str]) -> argparse.ArgumentParser:
    """The options that every end-to-end script has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--case", choices=cases, required=True, help="what to run")
    made.add_argument("--out", type=Path, default=Path("e2e-out"), help="folder of the evidence file and the servers' logs")
    made.add_argument("--one-by-one", action="store_true", help="no two servers at once, where a case does without")
    return made


def require_attnfix() -> None:
    """End the script with one sentence where the servers' Python cannot use attnfix, before they take minutes to start."""
    command = [sys.executable, "-m", "attnfix", "--version"]
    asked = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if asked.returncode:
        why = asked.stderr.strip().rpartition("\n")[2]
        raise SystemExit(f"attnfix is not usable here ({why}): install it with {sys.executable} -m pip install attnfix")


def finish(options: Any, about: dict[str, Any], result: dict[str, Any], lines: list[str], wrong: list[str]) -> int:
    """Print a case's table and what does not hold, write the evidence; the script's exit status.

    result: what goes into the file; where it has "models", each of them as a case of its own. Its "command" says how to repeat
    it, where that is not by --case."""
    command = f"python -m scripts.serve.{Path(sys.argv[0]).stem} --case {options.case}"
    seconds = round(elapsed())
    shared = {"command": command, "date": time.strftime("%Y-%m-%d"), "seconds": seconds, **result}
    models = shared.pop("models", {})
    for name, seen in models.items():
        failed = [one for one in wrong if one.startswith(f"{name}:")]
        case = {**shared, "command": f"{command} --models {name}", **seen, "failures": failed}
        write(options.out, about, f"{options.case} {name}", case)
    if not models:
        write(options.out, about, options.case, shared | {"failures": wrong})
    print(f"{about['engine']} {about['release']}, torch {about['torch']}, {about['gpu']}: {options.case}")
    print("\n".join(lines))
    print("\n".join(wrong) or "all checks hold")
    say(f"written to {options.out}")
    return 1 if wrong else 0
