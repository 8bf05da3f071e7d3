"""Stock and patched servers that do the same work in turns, so that their speed can be compared on a shared host.

Two pairs of servers share the GPU, a stock and a patched one in each. They do the same parts of the same rounds: every server
does a part before the next one begins, one at a time, since on a shared host a second is not like the next. Each server comes
first as often as the others, and each side of a pair as often before the other as after it, so that a drift falls on both.
What a pair needed for a part is one pair of figures. All servers do their parts on the same few CPU cores, as one works at a
time and a core is not like another.

Used by e2e_no_harm, where nothing is corrected, and by e2e_firing, where something is in every step.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.serve import e2e
from scripts.serve.e2e import PATCHED, STOCK, Server

#: Of the interval of tokens/s, patched / stock. The first token may take as much longer
LOWEST = 0.98
OFF = {"ATTNFIX": "0"}
THREADS = {"OMP_NUM_THREADS": "1"}  # torch's on the CPU, which would wait for each other on the few cores
CORES = slice(2, 10, 2)  # which of the allowed CPU cores the servers share: neighbours may be one physical core
_TICK_S = 0.01
LIFE_S = 1800  # of a server, with the wait for another script's
Key = tuple[str, str]  # of a server: its pair and side
Waves = Sequence[Sequence[Key]]
KEYS: tuple[Key, ...] = (("a", STOCK), ("a", PATCHED), ("b", STOCK), ("b", PATCHED))
#: Which servers start together. All at once is the shortest
AT_ONCE: Waves = (KEYS,)
#: Where kernels are tuned by trying: one tunes, the others start on what it has found
ONE_FIRST: Waves = (KEYS[:1], KEYS[1:])
#: Where graphs are compiled: either side starts once on what the other has compiled
COMPILED: Waves = ((KEYS[0], KEYS[3]), (KEYS[1], KEYS[2]))
#: (number of a round, number of a part) -> what a server's action `round` gets, and "computed", the tokens of prompts that are
#: not in the cache, where those count as work. Round -1 is the first, which is not timed
Traffic = Callable[[int, int], dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """script: whose child serves. variables: every server's environment; patched: what patched servers have beside it. repeats:
    whether all rounds are the same, so that tokens can be compared; else corrections are counted behind each round.

    cache: the environment variable that names the compile cache, one for each pair, and `loaded`, what the engine's log says
    when it has found its graphs there; None where nothing is compiled."""

    script: Sequence[str]
    settings: dict[str, Any]
    variables: dict[str, str] = field(default_factory=dict)
    patched: dict[str, str] = field(default_factory=dict)
    repeats: bool = True
    waves: Waves = AT_ONCE
    cache: str | None = None
    loaded: str | None = None


@dataclass(frozen=True)
class Length:
    """seconds: no round begins that would end later than this after the script's start."""

    rounds: int
    parts: int
    seconds: float = math.inf

    @property
    def pairs(self) -> int:
        """Of figures: two pairs of servers do each part."""
        return 2 * self.rounds * self.parts


def measure(plan: Plan, name: str, model: Path, traffic: Traffic, length: Length, out: Path) -> dict[str, Any]:
    """What the servers did. Where one of them ended: {"ended": why, "started": …}, and no figures."""
    servers: dict[Key, Server] = {}
    seen: dict[str, Any] = {"started": {}}
    try:
        _start(plan, name, model, traffic, length, out, servers, seen)
        for server in servers.values():
            _pin(server)
        with _alone(out):
            seen |= _rounds(servers, traffic, length, plan.repeats)
        seen["processes"] = {" ".join(key): server.status() for key, server in sorted(servers.items())}
    except SystemExit as ended:  # of Server.ask: one server alone is no comparison
        e2e.say(f"{name}: ended")
        seen["ended"] = str(ended)
    finally:
        for server in servers.values():
            server.close()
    return seen


def _start(
    plan: Plan, name: str, model: Path, traffic: Traffic, length: Length, out: Path, servers: dict[Key, Server],
    seen: dict[str, Any],
) -> None:  # fmt: skip
    """Wave by wave; each server does a round that is not timed, in which kernels are compiled or tuned at first use."""
    for place, wave in enumerate(plan.waves, 1):
        with ThreadPoolExecutor(len(wave)) as pool:
            begun = [
                pool.submit(_start_one, plan, name, model, out, key, place, 2.0 * at, servers, seen)
                for at, key in enumerate(wave)
            ]
        for one in begun:
            one.result()
        with _alone(out):
            for key in wave:
                for part in range(length.parts):
                    _ask(servers[key], traffic(-1, part))
    e2e.say(f"{name}: every server has done a round")


def _start_one(
    plan: Plan, name: str, model: Path, out: Path, key: Key, place: int, wait: float, servers: dict[Key, Server],
    seen: dict[str, Any],
) -> None:  # fmt: skip
    pair, side = key
    cache = out / f"cache-{name}-{pair}"
    if place == 1:
        shutil.rmtree(cache, ignore_errors=True)
    own = (plan.patched if side == PATCHED else OFF) | ({plan.cache: str(cache)} if plan.cache else {})
    before, label = _graphs(cache), f"{name}-{pair}-{side}"
    time.sleep(wait)  # so that no two look for a free port at once
    server = servers[key] = Server(plan.script, label, out / "logs", plan.variables | own, LIFE_S)
    settings = {name: str(model) if value == MODEL else value for name, value in plan.settings.items()}
    up = server.ask("start", model=str(model), **settings)
    seen["machine"] = up["machine"]
    e2e.say(f"{label}: up in {up['seconds']} s")
    started = seen["started"][" ".join(key)] = {"seconds": up["seconds"], "place": place}
    if plan.cache and plan.loaded:
        started["loaded"] = plan.loaded in server.log.read_text(errors="replace")
        started["new_graphs"] = sorted(_graphs(cache) - before)


MODEL = "{model}"  # in settings: the model's folder


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Only one of several scripts that share `out`, so may start their servers together, measures at a time."""
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
    """What the server's processes have used so far."""
    return sum(sum(process.cpu_times()[:2]) for process in _tree(server))


def _graphs(cache: Path) -> set[str]:
    """Folders of the compile cache, by whose names the engine tells graphs apart."""
    return {str(path.relative_to(cache)) for depth in ("*/*", "*/*/*") for path in cache.glob(depth) if path.is_dir()}


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
    return server.ask("round", **{name: value for name, value in part.items() if name != "computed"})


def _rounds(servers: dict[Key, Server], traffic: Traffic, length: Length, repeats: bool) -> dict[str, Any]:
    rate, first, cpu = ({key: list[float]() for key in servers} for _ in range(3))
    tokens: dict[tuple[str, int], list] = {}  # server and part -> in each round
    counted = {" ".join(key): [_corrections(servers[key])] for key in sorted(servers) if key[1] == PATCHED and not repeats}
    began, requests, done = time.monotonic(), 0, 0
    turns = order(length.rounds * length.parts)
    for at in range(length.rounds):
        taken = (time.monotonic() - began) / max(at, 1)
        if at and e2e.elapsed() + taken > length.seconds:
            break
        for figures in cpu.values():  # of whole rounds: it is counted in ticks too long for a part
            figures.append(_TICK_S)
        requests = 0
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
        for key, server in servers.items():
            if " ".join(key) in counted:
                counted[" ".join(key)].append(_corrections(server))
        done = at + 1
        if at == 0:
            e2e.say(f"first of {length.rounds} rounds in {time.monotonic() - began:.1f} s")
    e2e.say(f"{done} rounds of four servers done")
    return {
        "rounds": done, "parts": length.parts, "requests": requests, "measured_s": round(time.monotonic() - began, 1),
        **(_compared(tokens) if repeats else {"corrections": counted}),
        "tokens_per_s": {side: statistics.median(rate["a", side] + rate["b", side]) for side in (STOCK, PATCHED)},
        "first_token_s": {side: statistics.median(first["a", side] + first["b", side]) for side in (STOCK, PATCHED)},
        "cpu_s": {side: statistics.median(cpu["a", side] + cpu["b", side]) for side in (STOCK, PATCHED)},
        "ratio": {"tokens_per_s": ratios(rate), "first_token_s": ratios(first), "cpu_s": ratios(cpu)},
        "each_part": {"tokens_per_s": _named(rate), "first_token_s": _named(first)},
        "each_round": {"cpu_s": _named(cpu)},
    }  # fmt: skip


def _corrections(server: Server) -> dict[str, int]:
    """{fix: how often it has corrected so far, in all processes}."""
    found: dict[str, int] = {}
    for process in server.status():
        for fix, row in process["fixes"].items():
            found[fix] = found.get(fix, 0) + row["corrections"]
    return found


def _compared(tokens: Mapping[tuple[str, int], list]) -> dict[str, Any]:
    """Of rounds that are all the same: how often a server gave other tokens than in its first; in how many requests pair b's
    first answers are others than pair a's, stock against stock; and how many requests a patched server ever answered as neither
    stock server ever did."""
    names = sorted({name for name, _ in tokens})
    parts = sorted({part for _, part in tokens})
    own = {name: len({at for part in parts for at, one in enumerate(tokens[name, part]) if one != tokens[name, part][0]})
           for name in names}  # fmt: skip
    differ = lambda a, b: sum(x != y for part in parts for x, y in zip(tokens[a, part][0], tokens[b, part][0]))  # noqa: E731
    unknown = {}
    for name in (f"{pair} {PATCHED}" for pair in "ab"):
        seen = lambda part, at: [one[at] for pair in "ab" for one in tokens[f"{pair} {STOCK}", part]]  # noqa: E731
        unknown[name] = sum(
            any(one[at] not in seen(part, at) for one in tokens[name, part])
            for part in parts
            for at in range(len(tokens[name, part][0]))
        )
    return {
        "rounds_with_other_tokens": own,
        "requests_answered_as_no_stock_server_did": unknown,
        "requests_the_pairs_answer_otherwise": differ(f"a {STOCK}", f"b {STOCK}"),
    }


def ratios(figures: Mapping[Key, list[float]]) -> dict[str, Any]:
    """patched / stock over all rounds and in each pair; `stock b / stock a` shows what two processes of the same kind do."""
    both = [figures["a", side] + figures["b", side] for side in (PATCHED, STOCK)]
    pairs = {f"pair {pair}": e2e.ratio(figures[pair, PATCHED], figures[pair, STOCK]) for pair in "ab"}
    return {**e2e.ratio(*both), **pairs, "stock b / stock a": e2e.ratio(figures["b", STOCK], figures["a", STOCK])}


def _named(figures: Mapping[Key, list[float]]) -> dict[str, list[float]]:
    return {" ".join(key): [round(value, 4) for value in values] for key, values in sorted(figures.items())}


_FIGURES = ("ratio", "tokens_per_s", "first_token_s", "cpu_s")


def without_figures(seen: dict[str, Any], invalid: list[str]) -> dict[str, Any]:
    """`seen`; where something makes it `invalid`, that instead of what it would say about speed. What was measured stays."""
    if not invalid:
        return seen
    return {name: value for name, value in seen.items() if name not in _FIGURES} | {"invalid": invalid}


def too_few(seen: dict[str, Any], length: Length) -> list[str]:
    pairs = seen["ratio"]["tokens_per_s"]["pairs"]
    return [f"{pairs} of {length.pairs} pairs, then the time was over"] if pairs < length.pairs else []


def too_slow(seen: dict[str, Any]) -> list[str]:
    low = seen["ratio"]["tokens_per_s"]["low"]
    return [] if low >= LOWEST else [f"tokens/s, patched / stock: the interval begins at {low:.4f}"]


def too_late(seen: dict[str, Any]) -> list[str]:
    high = seen["ratio"]["first_token_s"]["high"]
    return [] if high <= 1 / LOWEST else [f"time to the first token, patched / stock: the interval ends at {high:.4f}"]


def stock_active(seen: dict[str, Any]) -> list[str]:
    return [
        f"{name}: attnfix was active" for name, processes in seen["processes"].items() if name.endswith(STOCK) and processes
    ]


def table(name: str, seen: dict[str, Any]) -> list[str]:
    if "ended" in seen:
        return [f"{name}: {seen['ended']}"]
    speed, latency, cpu = (seen["ratio"][what] for what in ("tokens_per_s", "first_token_s", "cpu_s"))
    lines = [
        f"{name}: {seen['rounds']} rounds of {seen['requests']} requests, four servers, {speed['pairs']} pairs in "
        f"{seen['measured_s']:.0f} s",
        f"  tokens/s: stock {seen['tokens_per_s'][STOCK]:.0f}, patched {seen['tokens_per_s'][PATCHED]:.0f}; {interval(speed)}",
        f"  first token: stock {seen['first_token_s'][STOCK] * 1e3:.2f} ms, patched "
        f"{seen['first_token_s'][PATCHED] * 1e3:.2f} ms; {interval(latency)}",
        f"  CPU seconds of a round: stock {seen['cpu_s'][STOCK]:.3f}, patched {seen['cpu_s'][PATCHED]:.3f}; {interval(cpu)}",
        f"  stock b / stock a: tokens/s {interval(speed['stock b / stock a'])}",
    ]
    lines += [f"  {server}: up in {up}" for server, up in sorted(seen["started"].items())]
    for server, processes in seen["processes"].items():
        lines += [f"  {server}: {line}" for line in e2e.activity(processes)]
    return lines


def interval(found: dict[str, Any]) -> str:
    return f"ratio {found['ratio']:.4f}, 95 % interval {found['low']:.4f} to {found['high']:.4f}"
