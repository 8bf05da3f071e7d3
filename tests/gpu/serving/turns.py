"""Stock and patched servers that do the same work in turns, so that their speed can be compared on a shared host.

Two pairs of servers share the GPU, a stock and a patched one in each. Every server does a part of a round before the next part
begins, one at a time, since on a shared host a second is not like the next. Each server comes first as often as the others, and
each side of a pair as often before the other as after it, so that a drift falls on both. The figures of a pair for a part are
one pair of figures. All servers do their parts on the same few CPU cores, as one works at a time.
"""

from __future__ import annotations

import fcntl
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.serving import processes
from tests.gpu.serving.answers import ratio
from tests.gpu.serving.cases import OFF, PATCHED, SHARED, STOCK
from tests.gpu.serving.processes import Ended, Server

#: Where the interval of tokens/s, patched / stock, may begin. The time to the first token may end at its inverse
LOWEST = 0.98
CORES = slice(2, 10, 2)  # of the allowed CPU cores, those that the servers share: neighbours may be one physical core
_TICK_S = 0.01
LIFE_S = 1800  # of a server, with the wait for another measurement
Key = tuple[str, str]  # of a server: its pair and side
KEYS: tuple[Key, ...] = (("a", STOCK), ("a", PATCHED), ("b", STOCK), ("b", PATCHED))
AT_ONCE = (KEYS,)
#: Where kernels are tuned by trying: one server tunes, the others start on what it has found
ONE_FIRST = (KEYS[:1], KEYS[1:])
#: (round, part) -> what a child's `round` gets, and "computed": tokens of prompts that count as work beside the new ones.
#: Round -1 is the first, which is not timed
Traffic = Callable[[int, int], dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """variables: every server's environment; patched: the one that patched servers have beside it. repeats: whether all rounds
    are the same, so that tokens can be compared; else corrections are counted behind each round."""

    engine: str
    settings: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)
    patched: Mapping[str, str] = field(default_factory=dict)
    repeats: bool = True
    waves: Sequence[Sequence[Key]] = AT_ONCE


@dataclass(frozen=True)
class Length:
    """rounds, and parts of each; no round begins that would end more than so many seconds after the first."""

    rounds: int = 6
    parts: int = 10
    seconds: float = math.inf

    @property
    def pairs(self) -> int:
        """Of figures: two pairs of servers do each part."""
        return 2 * self.rounds * self.parts


def measure(
    plan: Plan, name: str, model: Path, traffic: Traffic, length: Length, out: Path, command: Sequence[str] | None = None
) -> dict[str, Any]:
    """The figures of the servers. Where one of them ended: {"ended": why, "started": …}."""
    servers: dict[Key, Server] = {}
    seen: dict[str, Any] = {"started": {}}

    def start(key: Key, wait: float) -> None:
        time.sleep(wait)  # so that no two look for a free port at once
        own = plan.patched if key[1] == PATCHED else OFF
        variables = processes.VARIABLES[plan.engine] | {"OMP_NUM_THREADS": "1"} | plan.variables | own
        label = f"{name}-{'-'.join(key)}".replace(" ", "-")
        servers[key] = Server(command or processes.child(plan.engine), label, out / "logs", variables, LIFE_S)
        settings = {name: str(model) if value == "{model}" else value for name, value in plan.settings.items()}
        up = servers[key].start(model=str(model), **SHARED[plan.engine] | settings)
        seen["machine"], seen["started"][" ".join(key)] = up["machine"], up["seconds"]

    try:
        for wave in plan.waves:
            with ThreadPoolExecutor(len(wave)) as pool:
                for one in [pool.submit(start, key, 2.0 * at) for at, key in enumerate(wave)]:
                    one.result()
            with _alone(out):  # kernels are compiled or tuned at first use
                for key in wave:
                    for part in range(length.parts):
                        _ask(servers[key], traffic(-1, part))
        for server in servers.values():
            _pin(server)
        with _alone(out):
            seen |= _rounds(servers, traffic, length, plan.repeats)
        seen["processes"] = {" ".join(key): server.status() for key, server in sorted(servers.items())}
    except Ended as ended:  # one server alone is no comparison
        seen["ended"] = str(ended)
    finally:
        for server in servers.values():
            server.close()
    return seen


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Only one of several runs that share `out`, so may start their servers together, measures at a time."""
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "timed.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pin(server: Server) -> None:
    cores = sorted(os.sched_getaffinity(0))[CORES]
    for process in _tree(server):
        for thread in process.threads():
            with suppress(OSError):  # it has just ended
                os.sched_setaffinity(thread.id, cores or os.sched_getaffinity(0))


def _tree(server: Server) -> list[Any]:
    import psutil

    own = psutil.Process(server.process.pid)
    return [own, *own.children(recursive=True)]


def _cpu_seconds(server: Server) -> float:
    """The CPU time of the server's processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in _tree(server))


def order(parts: int) -> list[list[Key]]:
    """The order of servers in each part. Over four of them each comes first, and each side of a pair is as often before the
    other as after it."""
    turns = []
    for at in range(parts):
        pairs = ("a", "b") if at % 2 == 0 else ("b", "a")
        sides = (STOCK, PATCHED) if at // 2 % 2 == 0 else (PATCHED, STOCK)
        turns.append([(pair, side) for pair in pairs for side in (sides if pair == "a" else sides[::-1])])
    return turns


def _ask(server: Server, part: dict[str, Any]) -> dict[str, Any]:
    return server.do("round", **{name: value for name, value in part.items() if name != "computed"})


def _rounds(servers: dict[Key, Server], traffic: Traffic, length: Length, repeats: bool) -> dict[str, Any]:
    rate, first, cpu = ({key: list[float]() for key in servers} for _ in range(3))
    tokens: dict[tuple[str, int], list] = {}  # server and part -> in each round
    patched = {" ".join(key): server for key, server in sorted(servers.items()) if key[1] == PATCHED and not repeats}
    counted = {name: [processes.corrections(server.status())] for name, server in patched.items()}
    began, requests, done, turns = time.monotonic(), 0, 0, order(length.rounds * length.parts)
    for at in range(length.rounds):
        passed = time.monotonic() - began
        if at and passed + passed / at > length.seconds:
            break
        for figures in cpu.values():  # of whole rounds: it is counted in ticks too long for a part
            figures.append(_TICK_S)
        requests, done = 0, at + 1
        for part in range(length.parts):
            sent = traffic(at, part)
            requests += len(sent["prompts"])
            for key in turns[at * length.parts + part]:
                used = _cpu_seconds(servers[key])
                answer = _ask(servers[key], sent)
                cpu[key][-1] += _cpu_seconds(servers[key]) - used
                tokens.setdefault((" ".join(key), part), []).append(answer["tokens"])
                work = sum(map(len, answer["tokens"])) + sent.get("computed", 0)
                rate[key].append(work / answer["seconds"])
                first[key].append(statistics.median(answer["first"]))
        for name, server in patched.items():
            counted[name].append(processes.corrections(server.status()))
    measured = {"tokens_per_s": rate, "first_token_s": first, "cpu_s": cpu}
    medians = {name: {side: statistics.median(figures["a", side] + figures["b", side]) for side in (STOCK, PATCHED)}
               for name, figures in measured.items()}  # fmt: skip
    return {
        "rounds": done, "parts": length.parts, "requests": requests, "measured_s": round(time.monotonic() - began, 1),
        **(compared(tokens) if repeats else {"corrections": counted}), **medians,
        "ratio": {name: ratios(figures) for name, figures in measured.items()},
        "each_part": {name: _named(figures) for name, figures in measured.items()},
    }  # fmt: skip


def compared(tokens: Mapping[tuple[str, int], list]) -> dict[str, Any]:
    """Of rounds that are all the same: how often a server gave other tokens than in its first; in how many requests pair b's
    first answers are others than pair a's, stock against stock; and how many requests a patched server ever answered as neither
    stock server ever did. tokens: {(server, part): answers of each round}."""
    names, parts = sorted({name for name, _ in tokens}), sorted({part for _, part in tokens})
    own = {name: len({at for part in parts for at, one in enumerate(tokens[name, part]) if one != tokens[name, part][0]})
           for name in names}  # fmt: skip
    stock = [f"{pair} {STOCK}" for pair in "ab"]
    unknown = {}
    for name in (f"{pair} {PATCHED}" for pair in "ab"):
        known = lambda part, at: [one[at] for other in stock for one in tokens[other, part]]  # noqa: E731
        asked = [(part, at) for part in parts for at in range(len(tokens[name, part][0]))]
        unknown[name] = sum(any(one[at] not in known(part, at) for one in tokens[name, part]) for part, at in asked)
    pairs = (zip(*(tokens[name, part][0] for name in stock)) for part in parts)
    return {
        "rounds_with_other_tokens": own,
        "requests_answered_as_no_stock_server_did": unknown,
        "requests_the_pairs_answer_otherwise": sum(one != other for both in pairs for one, other in both),
    }


def ratios(figures: Mapping[Key, list[float]]) -> dict[str, Any]:
    """patched / stock over all rounds and in each pair; `stock b / stock a`: of two processes of the same kind."""
    both = [figures["a", side] + figures["b", side] for side in (PATCHED, STOCK)]
    pairs = {f"pair {pair}": ratio(figures[pair, PATCHED], figures[pair, STOCK]) for pair in "ab"}
    return {**ratio(*both), **pairs, "stock b / stock a": ratio(figures["b", STOCK], figures["a", STOCK])}


def _named(figures: Mapping[Key, list[float]]) -> dict[str, list[float]]:
    return {" ".join(key): [round(value, 4) for value in values] for key, values in sorted(figures.items())}


def invalid(seen: dict[str, Any]) -> list[str]:
    """Sentences about what makes a comparison of speed meaningless: a server that ended, an active stock server, and, where all
    rounds are the same, other tokens or a correction."""
    if "ended" in seen:
        return [f"ended: {seen['ended']}"]
    wrong = []
    for name, records in seen["processes"].items():
        if name.endswith(STOCK) and records:
            wrong.append(f"{name}: attnfix was active")
        if not processes.alive(records):
            wrong.append(f"{name}: a process that was serving counts as ended")
    if "corrections" in seen:
        return wrong
    if others := {name: count for name, count in seen["rounds_with_other_tokens"].items() if count}:
        wrong.append(f"not the tokens of its own first round, in rounds of {others}")
    if others := {name: count for name, count in seen["requests_answered_as_no_stock_server_did"].items() if count}:
        between = seen["requests_the_pairs_answer_otherwise"]
        wrong.append(f"requests answered as no stock server did: {others}; the two stock servers differ in {between}")
    return wrong


def costly(seen: dict[str, Any], length: Length, first_token: bool = True) -> list[str]:
    """Sentences about what a valid comparison does not hold: too few pairs, too few tokens/s, too late a first token."""
    speed, first = (seen["ratio"][name] for name in ("tokens_per_s", "first_token_s"))
    wrong = [f"{speed['pairs']} of {length.pairs} pairs, then the time was over"] if speed["pairs"] < length.pairs else []
    if not speed["low"] >= LOWEST:
        wrong.append(f"tokens/s, patched / stock: the interval begins at {speed['low']:.4f}")
    if first_token and not first["high"] <= 1 / LOWEST:
        wrong.append(f"time to the first token, patched / stock: the interval ends at {first['high']:.4f}")
    return wrong


def without_figures(seen: dict[str, Any], wrong: list[str]) -> dict[str, Any]:
    """`seen`; where something makes it `invalid`, that instead of a comparison. The measurements stay."""
    if not wrong:
        return seen
    figures = "ratio", "tokens_per_s", "first_token_s", "cpu_s"
    return {name: value for name, value in seen.items() if name not in figures} | {"invalid": wrong}
