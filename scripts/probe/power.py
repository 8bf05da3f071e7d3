#!/usr/bin/env python3
"""How large a fault `attnfix probe` sees, and how often it calls a healthy server broken: runs against servers of ours.

    python -m scripts.probe.power --out build/probe-cpu.json

Each relation is broken by itself, by faults of several sizes, `--runs` times each; healthy servers are asked `--healthy` times
at each size of noise. No GPU and no engine: the servers are scripts/probe/stand_in.py, without sockets, and their noise is
normal.

    python -m scripts.probe.power --out build/probe-resampled.json --recordings e2e-out/*.json

Healthy servers alone, `--healthy` times for each configuration that scripts/serve/gpu_probe.py has recorded on a GPU and of
which no bug is known: how far an answer moves is drawn from the figures of that configuration's prompts, by relation. Such a
run says how often chance alone makes a verdict of these figures. It does not show what the recorded prompts did not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from attnfix.probe.answers import Answer, Question
from attnfix.probe.client import Facts, Server
from attnfix.probe.relations import AGAIN, BURST, CACHED_COMPANY, COMPANY, PREFIX, SAMPLES, TURN
from attnfix.probe.run import Plan, Run
from scripts.probe.stand_in import Behaviour, Engine, Request
from scripts.serve.gpu_probe import HEALTHY

RELATIONS = AGAIN, PREFIX, COMPANY, CACHED_COMPANY, BURST, TURN, SAMPLES
#: Standard deviation of what a fault adds to each logit
SIZES = (0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
NOISES = (0.0, 0.01, 0.03, 0.06, 0.2)
USUAL = 0.02
_PLAN: dict[str, Any] = dict(prompts=8, tokens=10**9, seconds=10**9, length=90)


class Direct(Server):
    """The stand-in, asked by function calls: what is asked at once is one batch."""

    def __init__(self, behaviour: Behaviour):
        self.engine = Engine(behaviour)
        self.facts = Facts("stand-in", None, "toy", capacity=1 << 20)
        self.asked = self.tokens = self.verified = 0

    @classmethod
    def look(cls, http: Any) -> None:
        return None

    def ask(self, question: Question) -> Answer:
        return self.ask_all([question])[0]

    def ask_all(self, questions: Sequence[Question], apart_s: float = 0, cached: int | None = None) -> list[Answer]:
        batch = [Request(question.tokens, question.salt, question.new, question.samples) for question in questions]
        self.engine.serve(batch)
        self.asked += len(batch)
        return [self._read(each, each.cached) for each in batch]

    def _read(self, request: Request, cached: int) -> Answer:
        others = tuple(self._read(other, cached) for other in request.others)
        return Answer(tuple(request.told), tuple(request.listed), cached, others=others)

    def tokenize(self, text: str) -> None:
        return None

    def _request(self, question: Question) -> Any:
        raise NotImplementedError

    def several(self, looks: int = 1) -> bool:
        return False

    def _drafts(self) -> None:
        return None

    def _answer(self, body: Any) -> Answer:
        raise NotImplementedError

    def _mark(self) -> dict[str, str]:
        return {}


def one(task: tuple[str, dict[str, Any], int]) -> dict[str, Any]:
    """One run of the probe: what it said of each relation."""
    name, how, seed = task
    random.seed(seed)
    server = Direct(Behaviour(**{name: to for name, to in how.items() if name not in ("config", "cache")}))
    server.engine.draw.seed(seed)
    server.facts.flags["cache_dtype"] = how.get("cache")
    found = Run(server, Plan(**_PLAN, config=how.get("config"), seed=seed))()
    rows = {row["relation"]: row for row in found["relations"]}
    said = {relation: row["verdict"] for relation, row in rows.items()}
    median = {relation: row["median"] for relation, row in rows.items()}
    shared = {name: found[name] for name in ("verdict", "floor", "margin")}
    return {
        "what": name,
        "how": {} if "recorded" in how else how,
        "said": said,
        "median": median,
        "requests": found["load"]["requests"],
        **shared,
    }


def tasks(runs: int, healthy: int) -> list[tuple[str, dict[str, Any], int]]:
    made = [("size", {"lies": {name: size}, "noise": USUAL}) for name in RELATIONS for size in SIZES for _ in range(runs)]
    made += [("share", {"lies": {PREFIX: 0.5}, "noise": USUAL, "share": share}) for share in SHARES for _ in range(4 * runs)]
    made += [("healthy", {"noise": noise}) for noise in NOISES for _ in range(healthy)]
    return [(name, how, 1000 + at) for at, (name, how) in enumerate(made)]


def recordings(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """What gpu_probe has seen of healthy servers: how a server of ours has to be, by configuration."""
    made = {}
    for path in paths:
        whole = json.loads(path.read_text())
        for name, case in whole["cases"].items():
            what = name.removeprefix("probe ")
            runs = [run for run in case.get("sides", {}).get("stock", {}).get("runs", ()) if run.get("floors")]
            if not name.startswith("probe ") or what not in HEALTHY or not runs:
                continue
            figures: dict[str, list[float]] = {"floor": [figure for run in runs for figure in run["floors"]]}
            for row in (row for run in runs for row in run["relations"]):
                figures.setdefault(row["relation"], []).extend(map(float, (x for x in row["moved"] if x != "not finite")))
            label = f"{whole['engine']} {whole['release']}, {what}, {whole['gpu']}"
            cache = HEALTHY[what].settings.get("kv_cache_dtype")
            made[label] = {"recorded": figures, "config": case["config"], "cache": cache}
    return made


def resampled(results: Sequence[dict[str, Any]], known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rows = []
    for label, how in known.items():
        here = [each for each in results if each["what"] == label]
        counts = {verdict: sum(each["verdict"] == verdict for each in here) for verdict in ("holds", "unclear", "broken")}
        figures = sum(len(part) for name, part in how["recorded"].items() if name != "floor")
        floor = max(each["floor"] for each in here)
        rows.append({"configuration": label, "recorded": figures, "runs": len(here), **counts, "highest_floor": floor})
    return {"resampled": rows, "runs": len(results), "broken": sum(row["broken"] for row in rows)}


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """power: share of runs that call the broken relation broken. false_alarms: runs that call a healthy server broken."""
    size, share, healthy = ([each for each in results if each["what"] == what] for what in ("size", "share", "healthy"))
    power = []
    for relation in RELATIONS:
        for nat in SIZES:
            here = [each for each in size if each["how"]["lies"] == {relation: nat}]
            seen = sum(each["said"][relation] == "broken" for each in here)
            others = sum(said == "broken" for each in here for name, said in each["said"].items() if name != relation)
            medians = sorted(each["median"][relation] for each in here)
            power.append({"relation": relation, "fault": nat, "moved_median": medians[len(medians) // 2], "runs": len(here),
                          "broken": seen, "others_broken": others})  # fmt: skip
    shares = [
        {"share": part, "runs": len(here), "broken": sum(each["said"][PREFIX] == "broken" for each in here)}
        for part in SHARES
        if (here := [each for each in share if each["how"]["share"] == part])
    ]
    alarms = []
    for noise in NOISES:
        here = [each for each in healthy if each["how"]["noise"] == noise]
        counts = {verdict: sum(each["verdict"] == verdict for each in here) for verdict in ("holds", "unclear", "broken")}
        alarms.append({"noise": noise, "runs": len(here), **counts, "highest_floor": max(each["floor"] for each in here)})
    return {"power": power, "shares": shares, "false_alarms": alarms}


def curve(found: dict[str, Any], path: Path) -> None:
    """Power against the size of the fault, for each relation."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for relation in RELATIONS:
        rows = [row for row in found["power"] if row["relation"] == relation]
        axes.plot([row["fault"] for row in rows], [row["broken"] / row["runs"] for row in rows], marker="o", label=relation)
    axes.set(xscale="log", xlabel="size of the fault: standard deviation of a logit, nat", ylabel="share of runs called broken")
    axes.axvline(USUAL, color="grey", linestyle=":", label="noise")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON; the curve lies beside it, as .svg")
    parser.add_argument("--runs", type=int, default=10, help="for each relation and size")
    parser.add_argument("--healthy", type=int, default=600, help="for each size of noise")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--recordings", type=Path, nargs="+", default=[], help="evidence of gpu_probe, to draw the noise from")
    options = parser.parse_args()
    began, jobs = time.monotonic(), tasks(options.runs, options.healthy)
    known = recordings(options.recordings)
    if options.recordings:
        if not known:
            parser.error("these files hold no recording of a healthy server")
        jobs = [(name, how, 1000 + at) for at, (name, how) in enumerate([*known.items()] * options.healthy)]
    with ProcessPoolExecutor(options.processes) as pool:
        results = list(pool.map(one, jobs, chunksize=4))
    words = f"--recordings {' '.join(map(str, options.recordings))}" if known else f"--runs {options.runs}"
    found = {
        "command": f"python -m scripts.probe.power {words} --healthy {options.healthy}",
        "machine": "CPU; servers of ours, no engine and no GPU",
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(time.monotonic() - began),
        "requests_of_a_run": max(each["requests"] for each in results),
        **(resampled(results, known) if known else {"usual_noise": USUAL} | summary(results)),
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    if not known:
        curve(found, options.out.with_suffix(".svg"))
    print(json.dumps({name: found[name] for name in found if name not in ("power", "command")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
