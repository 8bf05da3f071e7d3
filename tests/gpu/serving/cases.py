"""A case: servers that differ in environment and settings, one conversation with each, and how their answers must compare.

`run` starts the sides, all at once, and has the same conversation with each; `judge` measures and says what does not hold;
`record` keeps both beside the other cases of that GPU and release, in the form that `scripts.evidence` reads.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID, FIXES
from scripts.evidence.summaries import short_gpu
from tests.gpu.serving import answers, processes
from tests.gpu.serving.processes import Ended, Server

STOCK, PATCHED = "stock", "patched"
OFF = {"ATTNFIX": "0"}
#: What every server of an engine has, beside what a case says. vLLM's cache has a given size, so that servers which start
#: together do not measure each other's memory
SHARED: dict[str, dict[str, Any]] = {
    "vllm": {
        "max_num_seqs": 16, "gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 4 << 30, "enable_prefix_caching": True,
    },
    "sglang": {
        "attention_backend": "flashinfer", "sampling_backend": "pytorch", "grammar_backend": "none",
        "disable_piecewise_cuda_graph": True, "mem_fraction_static": 0.5, "max_total_tokens": 262144, "context_length": 16384,
    },
}  # fmt: skip
#: A compilation config of vLLM: graphs of decodes without Inductor, with which a start takes half the time
GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8, 16]}
V1_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
_WRONG = {"failed", "conflict", "late", "unknown source"}
Found = dict[str, dict[str, Any]]
Answers = dict[str, list[Any]]


def on(*fixes: str) -> dict[str, str]:
    """The environment with these fixes; most are on by default."""
    return {BY_ID[fix].switch: "1" for fix in fixes if not BY_ID[fix].default}


def without(*fixes: str) -> dict[str, str]:
    """The environment without these fixes, where they are on by default."""
    return {BY_ID[fix].switch: "0" for fix in fixes}


@dataclass(frozen=True)
class Side:
    """environment, settings: what a server has beside those of all. plugin: a file of this folder that vLLM takes as a plugin.

    ends: what its log must say when it ends, as it must; may_end: it may end, and is not compared then."""

    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    plugin: str = ""
    ends: str | None = None
    may_end: bool = False

    @property
    def patched(self) -> bool:
        return self.environment.get("ATTNFIX") != "0"


@dataclass(frozen=True)
class Same:
    """Answers of two sides that are equal to the bit, or no more than `at_most` apart, in scenarios that begin like this."""

    side: str
    other: str
    scenarios: tuple[str, ...]
    at_most: float = 0.0


@dataclass(frozen=True)
class Case:
    """fixes: a release must have one of their bugs. ask: the conversation, which gives (scenario, answer) again and again.

    reference: the side whose answers are right, or a function of (everything found, the model's folder, answers of a side) that
    gives the right ones; with None, the conversation itself gives pairs of a right answer and one to compare.

    measure: of a right answer and another, a figure; more is worse. total: of all figures of a scenario, one. red: {side:
    scenarios} in which the total must be above `wrong`; with red_total, another total. Everywhere else it is at most
    `rounding`, but on sides that are `free`. yardstick: a side whose total the limits are multiples of;
    furthest: the same for each answer.

    corrects: {side: fixes} that correct there, and no others; without it, one of `fixes` does on each patched side where it is
    on. emulated: what is not the engine's or the GPU's own."""

    name: str
    engine: str
    fixes: tuple[str, ...]
    model: Callable[[Path], Path]
    ask: Callable[[Server], Iterable[tuple[str, Any]]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    sides: Mapping[str, Side] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    reference: str | Callable[[Found, Path, Answers], Answers] | None = None
    measure: Callable[[Any, Any], float] = answers.difference
    total: Callable[[Sequence[float]], float] = answers.worst
    red: Mapping[str, Collection[str]] = field(default_factory=dict)
    red_total: Callable[[Sequence[float]], float] | None = None
    rounding: float = 0.08
    wrong: float = 0.15
    free: Collection[str] = ()
    yardstick: str | None = None
    furthest: float = math.inf
    same: tuple[Same, ...] = ()
    corrects: Mapping[str, Collection[str]] = field(default_factory=dict)
    gpus: int = 1
    one_by_one: bool = False
    emulated: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def all_sides(self) -> Mapping[str, Side]:
        return self.sides or {STOCK: Side(OFF), PATCHED: Side(on(*self.fixes))}


def release_of(engine: str) -> str | None:
    """The release of an engine that is installed here, or on the path."""
    try:
        return version(engine).partition("+")[0]
    except PackageNotFoundError:
        return None


def affected(engine: str, release: str) -> set[str]:
    """Fixes whose bug that release has."""
    return {fix.id for fix in FIXES if fix.engine == engine and ledger.load(fix).verdict(release) == ledger.AFFECTED}


def why_not(engine: str, fixes: Collection[str] = (), gpus: int = 1) -> str | None:
    """Why a case cannot run here."""
    release = release_of(engine)
    if release is None:
        return f"{engine} is not installed here"
    if fixes and not affected(engine, release) & set(fixes):
        return f"{engine} {release} has no bug of {', '.join(fixes)}"
    if gpus > max(processes.gpus(), 1) and "NCCL_MULTI_RANK_GPU_ENABLE" not in os.environ:
        return f"needs {gpus} GPUs, or what one_gpu.py says"
    return None


def run(case: Case, out: Path, command: Sequence[str] | None = None) -> Found:
    """{side: answers of each scenario, processes with attnfix's records, what it ran on, wrong; ended and said, where it did}.

    out: for models, logs and caches. command: of the servers, where it is not the engine's child."""
    model = case.model(out / "models" / case.name)
    sides = case.all_sides
    with ThreadPoolExecutor(1 if case.one_by_one else len(sides)) as pool:
        serve = partial(_serve, case, model, out, command or processes.child(case.engine))
        running = {name: pool.submit(serve, at, name) for at, name in enumerate(sides)}
        return {name: one.result() for name, one in running.items()}


def _serve(case: Case, model: Path, out: Path, command: Sequence[str], at: int, name: str) -> dict[str, Any]:
    side = case.all_sides[name]
    time.sleep(0 if case.one_by_one else 2 * at)  # so that no two look for a free port at once
    label = re.sub(r"\W+", "-", f"{case.name}-{name}")
    variables = processes.VARIABLES[case.engine] | case.variables | side.environment
    if case.engine == "vllm":
        variables |= {"VLLM_CACHE_ROOT": str(out / "caches" / label)}
    if side.plugin:
        path = processes.plugin(processes.HERE / side.plugin, out / "plugins" / label)
        variables |= {"PYTHONPATH": f"{path}:{processes.environment().get('PYTHONPATH', '')}".rstrip(":")}
    given: Answers = {}
    found: dict[str, Any] = {"environment": dict(side.environment), "answers": given, "processes": []}
    with Server(command, label, out / "logs", variables) as server:
        try:
            settings = {key: _filled(value, model) for key, value in (case.settings | side.settings).items()}
            found["machine"] = server.start(model=str(model), **SHARED[case.engine] | settings)["machine"]
            for scenario, answer in case.ask(server):
                given.setdefault(scenario, []).append(answer)
            found["processes"] = server.status()
        except Ended as error:
            said = [one for one in processes.errors(server.said) if not re.match("EngineDead|.*stack trace above", one)]
            found |= {"ended": str(error), "said": said}
        found["wrong"] = server.wrong
    return found


def _filled(value: Any, model: Path) -> Any:
    """A setting with the model's folder in the place of `{model}`."""
    if isinstance(value, list):
        return [_filled(one, model) for one in value]
    return value.replace("{model}", str(model)) if isinstance(value, str) else value


def figures(case: Case, found: Found, model: Path) -> dict[str, dict[str, list[float]]]:
    """{side: {scenario: the measure of each answer}}, without the side that is the reference."""
    measured: dict[str, dict[str, list[float]]] = {}
    for name, side in found.items():
        if name == case.reference or "ended" in side:
            continue
        pairs: Any = side["answers"]
        if case.reference is not None:
            right = case.reference(found, model, pairs) if callable(case.reference) else found[case.reference]["answers"]
            pairs = {scenario: list(zip(right.get(scenario, ()), each)) for scenario, each in pairs.items()}
        measured[name] = {scenario: [case.measure(*both) for both in each] for scenario, each in pairs.items()}
    return measured


def judge(case: Case, found: Found, measured: Mapping[str, Mapping[str, list[float]]]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = [f"{name}: {sentence}" for name, side in found.items() for sentence in side.get("wrong", ())]
    for name, side in case.all_sides.items():
        ended, said = found[name].get("ended"), found[name].get("said", [])
        if ended is None and side.ends is not None:
            wrong.append(f"{name}: it served to the end")
        elif ended and not side.may_end and not (side.ends is not None and re.search(side.ends, " ".join([ended, *said]))):
            wrong.append(f"{name}: {ended}; {said[-1] if said else 'no exception in its log'}")
    for name, scenarios in measured.items():
        for scenario, each in scenarios.items():
            wrong += [f"{name}, {scenario}: {one}" for one in _limits(case, name, scenario, each, measured)]
    wrong += [f"{name}: nothing was answered" for name, one in measured.items() if not any(one.values())]
    for same in case.same:
        wrong += _same(case, same, found)
    return wrong + _activity(case, found)


def _limits(
    case: Case, name: str, scenario: str, each: list[float], measured: Mapping[str, Mapping[str, list[float]]]
) -> list[str]:
    if case.yardstick and not measured.get(case.yardstick, {}).get(scenario):
        return [f"{case.yardstick} has no answers"]
    beside = measured[case.yardstick][scenario] if case.yardstick else []
    unit, of = (case.total(beside), f" times {case.yardstick}'s") if case.yardstick else (1.0, "")
    if scenario in case.red.get(name, ()):
        figure = (case.red_total or case.total)(each)
        return [] if figure > case.wrong * unit else [f"{figure / unit:.3g}{of} is not wrong"]
    if name in case.free:
        return []
    figure, wrong = case.total(each), []
    if not figure <= case.rounding * unit:
        wrong.append(f"{figure / unit:.3g}{of} is above {case.rounding:g}")
    if further := [one / other for one, other in zip(each, beside) if not one <= case.furthest * other]:
        wrong.append(f"{len(further)} answers are up to {max(further):.3g}{of}")
    return wrong


def _same(case: Case, same: Same, found: Found) -> list[str]:
    wrong = []
    both = [found[name]["answers"] for name in (same.side, same.other)]
    chosen = [scenario for scenario in both[0] if scenario.startswith(same.scenarios)]
    for scenario in chosen:
        ours, theirs = ([one[0] if isinstance(one, tuple) else one for one in side.get(scenario, ())] for side in both)
        apart = [one for one, other in zip(ours, theirs) if not _equal(case, one, other, same.at_most)]
        if len(ours) != len(theirs) or apart:
            wrong.append(f"{same.side}, {scenario}: {len(apart)} of {len(ours)} answers are not those of {same.other}")
    return wrong if chosen else [f"{same.side}: no answer to compare with {same.other}"]


def _equal(case: Case, one: Any, other: Any, at_most: float) -> bool:
    if at_most:
        return case.measure(other, one) <= at_most
    return one["tokens"] == other["tokens"] and one.get("logprobs") == other.get("logprobs")


def _activity(case: Case, found: Found) -> list[str]:
    wrong = []
    for name, side in case.all_sides.items():
        records = found[name]["processes"]
        corrected = set(processes.corrections(records))
        if not side.patched and records:
            wrong.append(f"{name}: attnfix was active")
        if "ended" in found[name]:
            continue
        expected = {fix for fix in case.fixes if side.patched and side.environment.get(BY_ID[fix].switch) != "0"}
        if case.corrects and corrected != set(case.corrects.get(name, ())):
            told = [sorted(some) or "nothing" for some in (corrected, case.corrects.get(name, ()))]
            wrong.append(f"{name}: corrected by {told[0]}, expected {told[1]}")
        elif not case.corrects and expected and not expected & corrected:
            wrong.append(f"{name}: {', '.join(sorted(expected))} corrected nothing")
        if not processes.alive(records):
            wrong.append(f"{name}: a process that was serving counts as ended")
    return wrong


def unlike_ledgers(engine: str, release: str, records: list[dict[str, Any]]) -> list[str]:
    """A needed fix that no process names, one that failed, or one that stands without need: a sentence for each."""
    rows = [(fix, row) for process in records for fix, row in process["fixes"].items()]
    known = affected(engine, release)
    needed = {fix.id for fix in FIXES if fix.id in known and fix.default}
    wrong = [f"{fix} is {row['state']}: {row['reason']}" for fix, row in rows if row["state"] in _WRONG]
    unnamed = sorted(needed - {fix for fix, _ in rows})
    dormant = max((process["others"].get("dormant", 0) for process in records), default=0)  # no module of theirs is imported
    if len(unnamed) > dormant:
        wrong.append(f"needed by the ledger are {', '.join(unnamed)}; no process names them, and {dormant} fixes are dormant")
    stands = {fix for fix, row in rows if row["state"] in ("installed", "effective")}
    return wrong + [f"{fix} stands, and the ledger does not say affected" for fix in sorted(stands - known)]


def told(case: Case, found: Found, measured: Mapping[str, Mapping[str, list[float]]], name: str) -> str:
    """A side's totals as words; it is the end of its first word, where sides have several kinds."""
    shown = []
    for side in (side for side in found if side.partition(", ")[0] == name):
        kind = side.partition(", ")[2]
        if "ended" in found[side]:
            said = found[side]["said"]
            words = [f"the engine ended: {said[-1] if said else found[side]['ended']}"]
        else:
            words = [f"{scenario} {case.total(each):.2g}" for scenario, each in measured.get(side, {}).items() if each]
        shown.append(f"{kind}: {', '.join(words)}" if kind else ", ".join(words))
    return "; ".join(shown)


def tried(case: Case, out: Path, node: str, command: Sequence[str] | None = None) -> list[str]:
    """Run, judge and record a case: what does not hold. node: how pytest names it."""
    began = time.monotonic()
    found = run(case, out, command)
    measured = figures(case, found, out / "models" / case.name)
    wrong = judge(case, found, measured)
    machines = [side.pop("machine") for side in found.values() if "machine" in side]
    for side in found.values():
        del side["answers"]
    result = {
        "settings": SHARED[case.engine] | case.settings, "environment": case.variables,
        "sides": {name: side | {"figures": measured.get(name)} for name, side in found.items()},
        "told": {name: told(case, found, measured, name) for name in (STOCK, PATCHED)},
        "shown": not any(sentence.endswith("is not wrong") for sentence in wrong), "failures": wrong,
        "seconds": round(time.monotonic() - began),
    }  # fmt: skip
    result |= {"emulated": case.emulated} if case.emulated else {}
    result |= {"gpus": processes.gpus()} if case.gpus > 1 else {}
    if machines:
        record(out, machines[0], case.name, result, node)
    return wrong


def record(out: Path, machine: Mapping[str, Any], name: str, result: Mapping[str, Any], node: str) -> Path:
    """Put a case into out/e2e-<gpu>-<engine>-<release>.json, beside the cases that are there. Figures that are not finite
    become null. Several runs may write there."""
    path = out / f"e2e-{short_gpu(machine['gpu']).lower()}-{machine['engine']}-{machine['release']}.json"
    out.mkdir(parents=True, exist_ok=True)
    about = {"command": f"python -m pytest {node!r}", "date": time.strftime("%Y-%m-%d"), "machine": machine}
    with open(out / "records.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        former = json.loads(path.read_text())["cases"] if path.exists() else {}
        path.write_text(json.dumps(_finite({**machine, "cases": former | {name: {**about, **result}}}), indent=1) + "\n")
    return path


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
