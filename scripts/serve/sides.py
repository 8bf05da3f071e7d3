"""Servers of one engine that differ in environment and settings, and are asked the same."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.serve import e2e
from scripts.serve.e2e import Server


@dataclass(frozen=True)
class Side:
    """environment and settings: what this side has beside those of all. plugin: a folder to put on the path. may_fail: whether
    its server may not start: then it has "ended", why, and "said", the last exception of its log that points to no other."""

    environment: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    plugin: Path | None = None
    may_fail: bool = False


@dataclass(frozen=True)
class Serving:
    """script, variables, settings: of every side. model: its folder. out: for logs, records and caches. cache: the variable
    that names the folder of the engine's compile cache. one_by_one: no two servers at once."""

    script: Sequence[str]
    model: Path
    out: Path
    settings: dict[str, Any]
    variables: dict[str, str] = field(default_factory=dict)
    cache: str | None = None
    one_by_one: bool = False

    def __call__(self, sides: Mapping[str, Side], work: Callable[[Server], dict[str, Any]]) -> dict[str, Any]:
        """{side: what `work(server)` found, its environment, and what `attnfix status` said while it served}."""
        with ThreadPoolExecutor(1 if self.one_by_one else len(sides)) as pool:
            runs = {name: pool.submit(self._one, at, name, side, work) for at, (name, side) in enumerate(sides.items())}
            return {name: run.result() for name, run in runs.items()}

    def _one(self, at: int, name: str, side: Side, work: Callable[[Server], dict[str, Any]]) -> dict[str, Any]:
        time.sleep(0 if self.one_by_one else 2 * at)  # so that no two look for a free port at once
        label = re.sub(r"\W+", "-", name)
        variables = self.variables | side.environment
        if self.cache:
            variables[self.cache] = str(self.out / "caches" / label)
        if side.plugin:
            variables["PYTHONPATH"] = f"{side.plugin}:{e2e.environment().get('PYTHONPATH', '')}".rstrip(":")
        with Server(self.script, label, self.out / "logs", variables) as server:
            settings = self.settings | side.settings
            started = server.ask("start", may_fail=side.may_fail, model=str(self.model), **settings)
            if "error" in started:
                e2e.say(f"{name}: did not start")
                said = [one for one in e2e.errors(server.log.read_text(errors="replace")) if "stack trace above" not in one]
                ended = {"ended": f"start: {started['error']}", "said": said[-1] if said else None}
                return ended | {"environment": side.environment, "processes": []}
            e2e.say(f"{name}: up in {started['seconds']} s")
            found = work(server)
            found |= {"environment": side.environment, "processes": server.status(), "machine": started["machine"]}
        e2e.say(f"{name}: done")
        return found


def cold_and_cached(prompts: Sequence[list[int]]) -> Callable[[Server], dict[str, Any]]:
    """Asks a server for its answers to prompts, with nothing cached and with their first half cached."""
    return lambda server: {"answers": [e2e.cold_and_cached(server, prompt) for prompt in prompts]}
