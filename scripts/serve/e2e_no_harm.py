#!/usr/bin/env python3
"""Whether attnfix does anything where nothing is to be done: the same requests to stock and patched servers, in turns.

    python -m scripts.serve.e2e_no_harm --engine vllm==0.33.0 --model mla
    python -m scripts.serve.e2e_no_harm --engine sglang==0.5.23 --model mla dense hybrid
    python -m scripts.serve.e2e_no_harm --engine vllm==0.25.1 --model dense --compiled

mla: a DeepSeek-V2. dense: a Llama; on sglang a Granite. hybrid: a Qwen3-Next, on sglang a NemotronH, without drafts. Each has
about 2.5 billion weights, so that the GPU takes most of the time, as in service; with --small it is the engine's Python, where
attnfix could cost more, and figures are noisy.

Needs one GPU of the Hopper generation with 60 GB, vLLM or sglang, and attnfix, installed or on PYTHONPATH, attnfix so that its
.pth file is processed. No network: models are made here with random weights, prompts are token ids. About 200 s a model for 120
pairs, `hybrid` and --compiled a minute more; on a machine without FlashInfer's compiled kernels sglang takes three minutes more
at first. One model at a time on a GPU: four servers of 12 GB serve it. Scripts with the same --out measure one after another,
even on several GPUs, as they would take each other's CPU; what starts meanwhile makes figures noisier. Each model is a case
"no-harm …" of OUT/e2e-<gpu>-<engine>-<release>.json; logs of the servers lie beside it. Exits 1 when a check fails.

A round is 200 requests in 10 parts (see scripts/serve/turns.py): prefixes go into the cache, the part's requests are served,
and single ones for the latency of a first token. A part's requests are all there before its first step: what is in a step does
not depend on arrival times, so every server has to give the same tokens in every round. Which fixes must be armed is what the
ledgers say of that release, and nothing may be corrected.

Where vLLM compiles (--compiled), each pair of servers has a compile cache of its own, empty at first, so that either side
starts once on what the other has compiled. Else decodes run in CUDA graphs without Inductor, with which a start takes half the
time.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from attnfix.cli.errors import CliError
from attnfix.cli.releases import parse
from scripts.serve import armed, e2e, e2e_sglang, e2e_vllm, served, tiny_deepseek, tiny_llama, tiny_nemotron, tiny_qwen, turns
from scripts.serve.e2e import PATCHED
from scripts.serve.turns import Length, Plan

KINDS = ("mla", "dense", "hybrid")
PAIRS, PARTS, NEW_TOKENS = 120, 10, 32
_GRANITE = functools.partial(tiny_llama.make, granite=True)
#: {engine: {kind: what writes it into a folder, in a size that takes the GPU as long as a model in service would}}
MAKERS: dict[str, dict[str, Callable[[Path], Path]]] = {
    "vllm": {
        "mla": functools.partial(tiny_deepseek.make, size=tiny_deepseek.LARGE),
        "dense": functools.partial(tiny_llama.make, size=tiny_deepseek.LARGE),
        "hybrid": functools.partial(tiny_qwen.make, size=tiny_qwen.LARGE),
    },
    "sglang": {
        "mla": functools.partial(tiny_deepseek.make, size=tiny_deepseek.LARGE),
        "dense": functools.partial(_GRANITE, size=tiny_deepseek.LARGE),
        "hybrid": functools.partial(tiny_nemotron.make, size=tiny_nemotron.LARGE),
    },
}
_SEQUENCES = 32
_ORDER = "vllm.mla-context-order"
#: What these servers have beside scripts.serve.served's
_SETTINGS: dict[str, dict[str, Any]] = {
    "vllm": {
        "max_model_len": 8192, "max_num_batched_tokens": 2048, "max_num_seqs": _SEQUENCES, "enforce_eager": False,
        "compilation_config": e2e_vllm.GRAPHS | {"cudagraph_capture_sizes": [1, 2, 4, 8, 12, 16, 20]},
    },
    "sglang": {
        "max_total_tokens": 131072, "cuda_graph_max_bs": _SEQUENCES, "max_running_requests": _SEQUENCES, "sleep_on_idle": True,
    },
}  # fmt: skip
#: Kernels that are tuned by trying round otherwise when another one wins: servers take over what the first has found
_TUNED = {"TRITON_CACHE_AUTOTUNING": "1"}


def traffic(_round: int, part: int) -> dict[str, Any]:
    """Of PARTS: {"before": prefixes, "prompts": 200 in all of them, "singles": …, "new_tokens": …}, token ids."""
    return _parts()[part]


@functools.cache
def _parts() -> list[dict[str, Any]]:
    draw = random.Random(7)
    tokens = lambda n: [draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(n)]  # noqa: E731
    before = [tokens(2000) for _ in range(2)]
    short = [tokens(draw.randrange(20, 400)) for _ in range(90)]
    long = [tokens(draw.randrange(2500, 4000)) for _ in range(40)]  # more than a step takes
    cached = [draw.choice(before) + tokens(draw.randrange(30, 900)) for _ in range(70)]
    kinds = [draw.sample(some, len(some)) for some in (short, long, cached)]
    singles = [tokens(600) for _ in range(2 * PARTS)]
    made = []
    for at in range(PARTS):
        prompts = [prompt for some in kinds for prompt in some[at::PARTS]]  # as many of each in every part
        draw.shuffle(prompts)
        made.append({"before": before, "prompts": prompts, "singles": singles[at::PARTS], "new_tokens": NEW_TOKENS})
    return made


def plan_of(engine: str, release: str | None, kind: str, compiled: bool = False) -> Plan:
    settings = served.MODELS[engine][kind][1] | _SETTINGS[engine]
    waves, variables = turns.AT_ONCE, dict(turns.THREADS)
    if kind == "hybrid":
        waves, variables = turns.ONE_FIRST, variables | _TUNED
    if engine == "sglang":
        return Plan(e2e_sglang.SCRIPT, settings, variables, waves=waves)
    settings, cache, loaded = e2e_vllm.SHARED | settings, None, None
    if compiled:
        del settings["compilation_config"]
        waves, cache, loaded = turns.COMPILED, "VLLM_CACHE_ROOT", "Directly load"
    variables |= e2e_vllm.VARIABLES
    if kind == "mla" and release and _ORDER in armed.affected(engine, release):  # which the other runner would have to correct
        variables |= e2e_vllm.V1_RUNNER
    return Plan(e2e_vllm.SCRIPT, settings, variables, waves=waves, cache=cache, loaded=loaded)


def run(
    engine: str, plans: dict[str, tuple[Plan, Callable[[Path], Path]]], length: Length, scratch: Path, out: Path,
    traffic: turns.Traffic = traffic,
) -> tuple[dict[str, Any], list[str], list[str]]:  # fmt: skip
    """(result, lines of a table, what does not hold) of every model. plans: {name: (plan, what writes the model)}."""
    result: dict[str, Any] = {"models": {}}
    lines, wrong = [], []
    for name, (plan, make) in plans.items():
        e2e.say(f"{name}: four servers start")
        seen = turns.measure(plan, name, made(make, scratch / name), traffic, length, out)
        result["machine"] = machine = seen.pop("machine", None) or result.get("machine") or e2e.machine(engine)
        lines += [*turns.table(name, seen), *_tokens(seen)]
        invalid = invalidated(seen)
        found = [*invalid, *(failures(engine, machine["release"], seen, length) if "ended" not in seen else [])]
        wrong += [f"{name}: {sentence}" for sentence in found]
        about = {"settings": plan.settings, "environment": plan.variables, "new_tokens": NEW_TOKENS}
        result["models"][name] = about | turns.without_figures(seen, invalid)
    return result, lines, wrong


def invalidated(seen: dict[str, Any]) -> list[str]:
    """What makes a comparison of speed meaningless: a server that ended, other tokens, something corrected, an active stock."""
    if "ended" in seen:
        return [f"ended: {seen['ended']}"]
    wrong = turns.stock_active(seen)
    if others := {name: count for name, count in seen["rounds_with_other_tokens"].items() if count}:
        wrong.append(f"not the tokens of its own first round, in rounds of {others}")
    if others := {name: count for name, count in seen["requests_answered_as_no_stock_server_did"].items() if count}:
        between = seen["requests_the_pairs_answer_otherwise"]
        wrong.append(f"requests answered as no stock server did: {others}; the two stock servers differ in {between}")
    for name, processes in seen["processes"].items():
        corrected = sorted({fix for one in processes for fix, row in one["fixes"].items() if row["corrections"]})
        if corrected:
            wrong.append(f"{name}: something was corrected, by {', '.join(corrected)}")
    return wrong


def failures(engine: str, release: str, seen: dict[str, Any], length: Length) -> list[str]:
    """One sentence for each check of a valid run that does not hold."""
    wrong = []
    if "ratio" in seen:
        wrong += [*turns.too_few(seen, length), *turns.too_slow(seen)]
    wrong += _cache_failures({name: up for name, up in seen["started"].items() if "loaded" in up})
    for name, processes in seen["processes"].items():
        if name.endswith(PATCHED):
            told = armed.failures(engine, release, processes) if processes else ["no process has a record"]
            wrong += [f"{name}: {sentence}" for sentence in told]
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


def _tokens(seen: dict[str, Any]) -> list[str]:
    if "ended" in seen:
        return []
    return [
        f"  rounds with other tokens than a server's first: {seen['rounds_with_other_tokens']}; requests answered as no stock "
        f"server did: {seen['requests_answered_as_no_stock_server_did']}, otherwise by the two stock servers: "
        f"{seen['requests_the_pairs_answer_otherwise']}, of {seen['requests']}"
    ]


def installed(asked: str | None) -> tuple[str, str | None]:
    """The engine that is installed, and its release if that is known without importing it. Ends the script where they are not
    those that were asked for."""
    engine = next((name for name in served.MODELS if importlib.util.find_spec(name)), None)
    if not engine:
        raise SystemExit("neither vllm nor sglang is installed here, or on PYTHONPATH")
    try:
        here = Version(version(engine)).public
    except (PackageNotFoundError, InvalidVersion):
        here = None
    try:
        name, release = parse(asked) if asked else (engine, here)
    except CliError as error:
        raise SystemExit(str(error)) from None
    if name != engine or (here and release and Version(release) != Version(here)):
        raise SystemExit(f"{engine} {here or ''} is what is installed here, not {asked}")
    return engine, release


def with_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """`parser`, with what all scripts of this kind have."""
    parser.add_argument("--engine", metavar="ENGINE==RELEASE", help="what must be installed here (default: what is)")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"at least so many pairs of figures (default {PAIRS})")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no round that would end later than this")
    parser.add_argument("--out", type=Path, default=Path("e2e-out"), help="folder of the evidence file and the servers' logs")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the models there, and take those that are there")
    return parser


@contextmanager
def models(options: argparse.Namespace) -> Iterator[Path]:
    """The folder in which each model has one of its own."""
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        yield options.keep or Path(scratch)


def made(make: Callable[[Path], Path], folder: Path) -> Path:
    """The model in `folder`, written unless it is there: that takes up to half a minute."""
    return folder if (folder / "model.safetensors").exists() else make(folder)


def length_of(options: argparse.Namespace, parts: int) -> Length:
    return Length(math.ceil(options.pairs / (2 * parts)), parts, options.seconds)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    with_options(parser)
    parser.add_argument("--model", nargs="+", choices=KINDS, default=list(KINDS), help="which (default all)")
    parser.add_argument("--small", action="store_true", help="models of a few layers, whose time the CPU takes")
    parser.add_argument("--compiled", action="store_true", help="vLLM with Inductor, and a compile cache for each pair")
    parser.set_defaults(case="no-harm")
    options = parser.parse_args(argv)
    engine, release = installed(options.engine)
    e2e.require_attnfix()
    plans = {}
    for kind in options.model:
        make = served.MODELS[engine][kind][0] if options.small else MAKERS[engine][kind]
        plans[kind if options.small else f"{kind}-large"] = plan_of(engine, release, kind, options.compiled), make
    with models(options) as folder:
        result, lines, wrong = run(engine, plans, length_of(options, PARTS), folder, options.out.resolve())
    for name, seen in result["models"].items():
        words = [f"--engine {result['machine']['engine']}=={result['machine']['release']} --model {name.partition('-')[0]}"]
        words += [f"--{word}" for word in ("small", "compiled") if getattr(options, word)]
        seen["command"] = " ".join(["python -m scripts.serve.e2e_no_harm", *words, f"--pairs {options.pairs}"])
    return e2e.finish(options, result.pop("machine"), result, lines, wrong)


if __name__ == "__main__":
    sys.exit(main())
