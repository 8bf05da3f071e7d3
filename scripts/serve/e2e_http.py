"""An engine's own HTTP server, as its users start it: what `attnfix status` and the engine's metrics page say meanwhile."""

from __future__ import annotations

import json
import random
import re
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from scripts.serve import e2e
from scripts.serve.e2e import Process

ROUNDS = 20  # at most; requests that meet in one step are a matter of arrival times
_START_S = 400
#: number of a round -> what is sent in it
Bodies = Callable[[int], list[dict[str, Any]]]
_PORT, _MODEL = "{port}", "{model}"  # in a launch line, where they go


class Http(Process):
    """launch: what follows `python`, with `{port}` in it. The server is up when the constructor returns."""

    def __init__(self, launch: list[str], name: str, folder: Path, variables: dict[str, str]):
        self.address = f"http://127.0.0.1:{_free_port()}"
        port = self.address.rpartition(":")[2]
        super().__init__([sys.executable, *(word.replace(_PORT, port) for word in launch)], name, folder, variables)
        until = time.monotonic() + _START_S
        while not self._is_up():
            if self.process.poll() is not None or time.monotonic() > until:
                self.close()
                raise SystemExit(f"{name}: the server did not start\n{self.tail(40)}")
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


def _free_port() -> int:
    """Below where the system takes its own from: sglang adds 10000 to it for a second one."""
    for port in random.sample(range(20000, 30000), 50):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise SystemExit("no free port between 20000 and 30000")


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings of an engine as its command line has them."""
    pairs = [(f"--{name.replace('_', '-')}", value) for name, value in settings.items() if value is not False]
    return [word for flag, value in pairs for word in ([flag] if value is True else [flag, str(value)])]


def on_page(page: str) -> dict[str, float]:
    """{sample with its labels: value} of attnfix's lines on a metrics page."""
    return {name: float(value) for name, value in re.findall(r"^(attnfix_\S+) (\S+)$", page, re.M)}


def counted(page: dict[str, float], fix: str, what: str) -> float:
    """Sum over all states of attnfix_<what>_total of `fix`."""
    samples = [value for name, value in page.items() if name.startswith(f"attnfix_{what}_total{{") and f'fix="{fix}"' in name]
    return sum(samples)


def metrics(
    launch: list[str], model: Path, out: Path, variables: dict[str, str], fix: str, path: str, bodies: Bodies
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Serve `model` with `launch` (`{model}` and `{port}` in it), send `bodies` to `path`: (result, table, failures)."""
    filled = [word.replace(_MODEL, str(model)) for word in launch]
    with Http(filled, "metrics", out / "logs", variables) as server:
        e2e.say("the HTTP server is up")
        found = _served(server, fix, path, bodies)
    return {"launch": ["python", *launch], "environment": variables, **found}, table(found), failures(found, fix)


def _served(server: Http, fix: str, path: str, bodies: Bodies) -> dict[str, Any]:
    """Send the bodies of a round at once, round by round, until the page counts a correction; what page and status say then."""
    first, requests = on_page(server.get("/metrics")), 0
    page = first
    for at in range(ROUNDS):
        sent = bodies(at)
        with ThreadPoolExecutor(len(sent)) as pool:
            list(pool.map(lambda body: server.post(path, body), sent))
        requests += len(sent)
        page = on_page(server.get("/metrics"))
        if counted(page, fix, "corrections"):
            break
    return {"requests": requests, "page": {"before": first, "after": page}, "processes": server.status()}


def failures(found: dict[str, Any], fix: str) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong, after = [], found["page"]["after"]
    records = e2e.corrections(found["processes"], fix)
    if not records:
        wrong.append(f"{fix} corrected nothing in {found['requests']} requests")
    if counted(after, fix, "corrections") != records:
        wrong.append(f"{fix}: the page counts {counted(after, fix, 'corrections'):.0f} corrections, the records {records}")
    if len(found["processes"]) < 2:
        wrong.append(f"attnfix status shows {len(found['processes'])} processes of a server and its engine")
    if not e2e.alive(found["processes"]):
        wrong.append("a process that was serving counts as ended")
    return wrong


def table(found: dict[str, Any]) -> list[str]:
    lines = [f"{found['requests']} requests; attnfix status: {len(found['processes'])} processes"]
    lines += [f"  {line}" for line in e2e.activity(found["processes"])]
    return [*lines, "on the engine's metrics page:", *(f"  {name} {value:g}" for name, value in found["page"]["after"].items())]
