"""Whether attnfix does anything where nothing is to be done: the same requests to stock and patched engines, in turns.

Two pairs of servers share the GPU. In pair `a` the stock engine starts first, in pair `b` the patched one; each pair has a
compile cache of its own, empty at first, so that either side starts once on what the other has compiled. Then all of them do
the same rounds. A round is 200 requests in PARTS parts, and every server does a part before the next one begins, one at a time:
prefixes go into the cache, the part's requests are served, and single ones for the latency of a first token. On a shared host a
second is not like the next, so what is compared lies close together. A part's requests are all there before its first step:
what is in a step does not depend on arrival times, so every round of both servers of a pair has to give the same tokens. Those
of the other pair may be others: it compiled by itself, and what a compiler tries out decides how sums are rounded.

With the small models the engine's Python is what takes the time, which is where attnfix could cost something; with the large
ones it is the GPU, as in service, and the CPU's noise matters less. All servers do their rounds on the same few CPU cores, as
one works at a time and a core is not like another.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts.serve import e2e, tiny_deepseek, tiny_llama
from scripts.serve.e2e import PATCHED, STOCK, Server

#: {name: what writes it into a folder}; the kind of attention comes first in a name
MAKERS = {
    "mla": tiny_deepseek.make,
    "dense": tiny_llama.make,
    "mla-large": partial(tiny_deepseek.make, size=tiny_deepseek.LARGE),
    "dense-large": partial(tiny_llama.make, size=tiny_deepseek.LARGE),
}
NEW_TOKENS = 64
PARTS = 5
LOWEST = 0.98  # of the interval of tokens/s, patched / stock
THREADS = {"OMP_NUM_THREADS": "1"}  # torch's on the CPU, which would wait for each other on the few cores
CORES = slice(2, 10, 2)  # which of the allowed CPU cores the servers share: neighbours may be one physical core
ROUND_S = 40  # that one of four servers takes at most, with the wait for another script's
START_ORDER = {"a": (STOCK, PATCHED), "b": (PATCHED, STOCK)}


@dataclass(frozen=True)
class Plan:
    """script: whose `--child` serves. cache: the environment variable that names the compile cache, and `loaded`, what the
    engine's log says when it has found its graphs there; None where the engine has no such cache. at_work: {kind of attention:
    {fix: its state}} of fixes that stand there and correct nothing. together: whether the pairs may start at the same time."""

    script: Sequence[str]
    settings: dict[str, Any]
    variables: dict[str, str]
    cache: str | None
    loaded: str | None
    at_work: dict[str, dict[str, str]]
    together: bool


@dataclass(frozen=True)
class Length:
    """rounds: at most so many. minutes: none begins that would end later than this after the script's start."""

    rounds: int
    minutes: float = math.inf


def traffic() -> list[dict[str, Any]]:
    """The parts of a round: {"before": prefixes, "prompts": 200 in all of them, "singles": …, "new_tokens": …}, token ids."""
    draw = random.Random(7)
    tokens = lambda n: [draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(n)]  # noqa: E731
    before = [tokens(3000) for _ in range(4)]
    short = [tokens(draw.randrange(20, 400)) for _ in range(90)]
    long = [tokens(draw.randrange(2500, 6000)) for _ in range(40)]  # more than a step takes
    cached = [draw.choice(before) + tokens(draw.randrange(30, 900)) for _ in range(70)]
    prompts = short + long + cached
    draw.shuffle(prompts)
    singles = [tokens(600) for _ in range(2 * PARTS)]
    part = lambda at: {"prompts": prompts[at::PARTS], "singles": singles[at::PARTS]}  # noqa: E731
    return [{"before": before, "new_tokens": NEW_TOKENS, **part(at)} for at in range(PARTS)]


def turns(parts: int) -> list[list[tuple[str, str]]]:
    """The order of servers, (pair, side), in each part. Over four of them each comes first, and each side of a pair is as often
    before the other as after it."""
    order = []
    for at in range(parts):
        pairs = ("a", "b") if at % 2 == 0 else ("b", "a")
        sides = (STOCK, PATCHED) if at // 2 % 2 == 0 else (PATCHED, STOCK)
        order.append([(pair, side) for pair in pairs for side in (sides if pair == "a" else sides[::-1])])
    return order


def with_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """`parser`, with what can be asked of this case."""
    large = [name for name in MAKERS if name.endswith("-large")]
    parser.add_argument("--rounds", type=int, default=12, help="no-harm: timed rounds of each server (default 12)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no-harm: no round that would end later than this")
    parser.add_argument(
        "--models", nargs="+", choices=MAKERS, default=large, help=f"no-harm: which models (default {' '.join(large)})"
    )
    return parser


def asked(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Path], Length]:
    """({name of a model: its folder in `folder`}, length) of those options."""
    return {name: MAKERS[name](folder / name) for name in options.models}, Length(options.rounds, options.minutes)


def run(plan: Plan, models: dict[str, Path], length: Length, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """(result, lines of a table, what does not hold) of every model."""
    result: dict[str, Any] = {"settings": plan.settings, "environment": plan.variables, "models": {}}
    lines, wrong = [], []
    for name, model in models.items():
        e2e.say(f"{name}: four servers start")
        seen = result["models"][name] = _one_model(plan, name, model, length, out)
        result["machine"] = seen.pop("machine")
        lines += table(name, seen)
        wrong += [f"{name}: {sentence}" for sentence in failures(seen, plan.at_work[name.partition("-")[0]])]
    return result, lines, wrong


def _one_model(plan: Plan, name: str, model: Path, length: Length, out: Path) -> dict[str, Any]:
    servers: dict[tuple[str, str], Server] = {}
    limit = e2e.LIMIT_S + ROUND_S * length.rounds
    seen: dict[str, Any] = {"started": {}}

    def start(pair: str) -> None:
        cache = out / f"cache-{name}-{pair}"
        for at, side in enumerate(START_ORDER[pair]):
            own = {} if side == PATCHED else {"ATTNFIX": "0"}
            if at == 0:
                shutil.rmtree(cache, ignore_errors=True)
            own |= {plan.cache: str(cache)} if plan.cache else {}
            before = _graphs(cache)
            label = f"{name}-{pair}-{side}"
            server = servers[pair, side] = Server(plan.script, label, out / "logs", plan.variables | own, limit)
            up = server.ask("start", model=str(model), **plan.settings)
            seen["machine"] = up["machine"]
            e2e.say(f"{label}: up in {up['seconds']} s")
            started = seen["started"][f"{pair} {side}"] = {"seconds": up["seconds"], "place": at + 1}
            if plan.cache and plan.loaded:
                started["loaded"] = plan.loaded in server.log.read_text(errors="replace")
                started["new_graphs"] = sorted(_graphs(cache) - before)

    try:
        if plan.together:
            with ThreadPoolExecutor(2) as pool:
                for done in [pool.submit(start, pair) for pair in START_ORDER]:
                    done.result()
        else:
            for pair in START_ORDER:
                start(pair)
        for server in servers.values():
            _pin(server)
        with _alone(out):
            seen |= _rounds(servers, length)
        seen["processes"] = {f"{pair} {side}": server.status() for (pair, side), server in sorted(servers.items())}
    finally:
        for server in servers.values():
            server.close()
    return seen


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Only one of several scripts that share `out`, so may start their servers together, measures at a time."""
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


def _rounds(servers: dict[tuple[str, str], Server], length: Length) -> dict[str, Any]:
    sent = traffic()
    rate, first = ({key: list[float]() for key in servers} for _ in range(2))
    cpu = {key: list[float]() for key in servers}  # of whole rounds: it is counted in ticks too long for a part
    tokens: dict[tuple[str, int], Any] = {}  # of each pair and part in the first round; all others must give the same
    different = {f"{pair} {side}": set[int]() for pair, side in sorted(servers)}
    for server in servers.values():  # not timed: kernels that are compiled at first use
        for part in sent:
            server.ask("round", **part)
    e2e.say("every server has done a round")
    began = time.monotonic()
    for at, order in enumerate(turns(length.rounds * PARTS)):
        if at % PARTS == 0:
            taken = (time.monotonic() - began) / max(at // PARTS, 1)
            if at and e2e.elapsed() + taken > 60 * length.minutes:
                break
            for figures in cpu.values():
                figures.append(0.0)
        for key in order:
            used = _cpu_seconds(servers[key])
            answer = servers[key].ask("round", **sent[at % PARTS])
            cpu[key][-1] += _cpu_seconds(servers[key]) - used
            if answer["tokens"] != tokens.setdefault((key[0], at % PARTS), answer["tokens"]):
                different[" ".join(key)].add(at // PARTS)
            rate[key].append(sum(map(len, answer["tokens"])) / answer["seconds"])
            first[key].append(statistics.median(answer["first"]))
        if at == PARTS - 1:
            e2e.say(f"first of {length.rounds} rounds in {time.monotonic() - began:.1f} s")
    rounds = len(next(iter(cpu.values())))
    e2e.say(f"{rounds} rounds of four servers done")
    return {
        "rounds": rounds, "parts": PARTS, "requests": sum(len(part["prompts"]) for part in sent), "new_tokens": NEW_TOKENS,
        "rounds_with_other_tokens": {name: len(found) for name, found in different.items()},
        "requests_the_pairs_answer_otherwise": sum(
            ours != theirs for at in range(PARTS) for ours, theirs in zip(tokens["a", at], tokens["b", at], strict=True)
        ),
        "tokens_per_s": {side: statistics.median(rate["a", side] + rate["b", side]) for side in (STOCK, PATCHED)},
        "first_token_s": {side: statistics.median(first["a", side] + first["b", side]) for side in (STOCK, PATCHED)},
        "cpu_s": {side: statistics.median(cpu["a", side] + cpu["b", side]) for side in (STOCK, PATCHED)},
        "ratio": {"tokens_per_s": _ratios(rate), "first_token_s": _ratios(first), "cpu_s": _ratios(cpu)},
        "each_part": {"tokens_per_s": _named(rate), "first_token_s": _named(first)},
        "each_round": {"cpu_s": _named(cpu)},
    }  # fmt: skip


def _ratios(figures: dict[tuple[str, str], list[float]]) -> dict[str, Any]:
    """patched / stock over all rounds and in each pair; `stock b / stock a` shows what two processes of the same kind do."""
    both = [figures["a", side] + figures["b", side] for side in (PATCHED, STOCK)]
    pairs = {f"pair {pair}": e2e.ratio(figures[pair, PATCHED], figures[pair, STOCK]) for pair in START_ORDER}
    return {**e2e.ratio(*both), **pairs, "stock b / stock a": e2e.ratio(figures["b", STOCK], figures["a", STOCK])}


def _named(figures: dict[tuple[str, str], list[float]]) -> dict[str, list[float]]:
    return {" ".join(key): [round(value, 4) for value in values] for key, values in sorted(figures.items())}


def failures(seen: dict[str, Any], at_work: dict[str, str]) -> list[str]:
    """One sentence for each check that does not hold. Without fixes `at_work`, none may be called."""
    wrong = []
    others = {name: count for name, count in seen["rounds_with_other_tokens"].items() if count}
    if others:
        wrong.append(f"not the tokens of the pair's first round, in rounds of {others}")
    if not seen["ratio"]["tokens_per_s"]["low"] >= LOWEST:
        wrong.append(f"tokens/s, patched / stock: the interval begins at {seen['ratio']['tokens_per_s']['low']:.4f}")
    wrong += _cache_failures({name: up for name, up in seen["started"].items() if "loaded" in up})
    for name, processes in seen["processes"].items():
        rows = [(fix, row) for process in processes for fix, row in process["fixes"].items()]
        if name.endswith(STOCK) and processes:
            wrong.append(f"{name}: attnfix was active")
        if any(row["corrections"] for _, row in rows):
            wrong.append(f"{name}: something was corrected")
        states = {fix: {row["state"] for other, row in rows if other == fix} for fix, _ in rows}
        if name.endswith(PATCHED):
            for fix, state in at_work.items():
                if not states.get(fix, set()) & {state, "effective"}:
                    wrong.append(f"{name}: {fix} is {sorted(states.get(fix, {'not there'}))}, expected {state}")
            if not at_work and (called := [fix for fix, row in rows if row["calls"]]):
                wrong.append(f"{name}: called were {called}, and this model is none of theirs")
    return wrong


def _cache_failures(started: dict[str, dict[str, Any]]) -> list[str]:
    """Compile caches: who starts first compiles, who starts second loads, and either writes what the other side would."""
    wrong = []
    for name, up in started.items():
        if up["place"] == 2 and not up["loaded"]:
            wrong.append(f"{name} did not start on the graphs that the other side compiled")
        if up["place"] == 1 and not up["new_graphs"]:
            wrong.append(f"{name} compiled nothing")
    for place in (1, 2):
        written = {name: up["new_graphs"] for name, up in started.items() if up["place"] == place}
        if len({tuple(graphs) for graphs in written.values()}) > 1:
            wrong.append(f"started in place {place}, stock and patched wrote graphs of other names: {written}")
    return wrong


def table(name: str, seen: dict[str, Any]) -> list[str]:
    speed, latency, cpu = (seen["ratio"][name] for name in ("tokens_per_s", "first_token_s", "cpu_s"))
    lines = [
        f"{name}: {seen['requests']} requests of {seen['new_tokens']} new tokens, {seen['rounds']} rounds of four servers",
        f"  tokens/s: stock {seen['tokens_per_s'][STOCK]:.0f}, patched {seen['tokens_per_s'][PATCHED]:.0f}; {_interval(speed)}",
        f"  first token: stock {seen['first_token_s'][STOCK] * 1e3:.2f} ms, patched "
        f"{seen['first_token_s'][PATCHED] * 1e3:.2f} ms; {_interval(latency)}",
        f"  CPU seconds of a round: stock {seen['cpu_s'][STOCK]:.3f}, patched {seen['cpu_s'][PATCHED]:.3f}; {_interval(cpu)}",
        f"  stock b / stock a: tokens/s {_interval(speed['stock b / stock a'])}",
        f"  rounds with other tokens than the pair's first: {seen['rounds_with_other_tokens']}; requests that the pairs answer "
        f"otherwise: {seen['requests_the_pairs_answer_otherwise']} of {seen['requests']}",
    ]
    lines += [f"  {server}: up in {up}" for server, up in sorted(seen["started"].items())]
    for server, processes in seen["processes"].items():
        lines += [f"  {server}: {line}" for line in e2e.activity(processes)]
    return lines


def _interval(found: dict[str, Any]) -> str:
    return f"ratio {found['ratio']:.4f}, 95 % interval {found['low']:.4f} to {found['high']:.4f}"
