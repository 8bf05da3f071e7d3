"""Labels of the doctor's corpus for vLLM: what each release makes of each launch line on each GPU.

    python -m scripts.doctor_corpus.vllm [--release 0.33.0 …] [--model deepseek-v3.1 …]

Reads tests/unit/doctor/corpus/vllm.toml and models/, and writes vllm.json beside them: {release: [case]}. A case has what the
engine itself chose (`facts`, where it differs from the `usual`), and what `verdicts` makes of it. Or it has the reason for
which no server starts.
One process for each release and GPU, forked for each model and for each launch. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import tomllib
from packaging.version import Version

from attnfix.compat.doctor import diagnosis, gpus
from attnfix.compat.doctor.condition import HIT, POSSIBLE, Fact, known
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.gate import ledger
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import FIXES, facts_of_fixes

CORPUS = Path("tests/unit/doctor/corpus")
LABELS = CORPUS / "vllm.json"
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1", "ATTNFIX": "0",
}  # fmt: skip


def cases() -> Iterator[tuple[str, str, str]]:
    """(model, launch, GPU)."""
    for model, lines in tomllib.loads((CORPUS / "vllm.toml").read_text())["launches"].items():
        for line in lines:
            names, _, launch = line.partition(": ")
            yield from ((model, launch, gpu) for gpu in names.split())


def config_of(model: str) -> dict[str, Any]:
    config = json.loads((CORPUS / "models" / f"{model}.json").read_text())
    return {name: value for name, value in config.items() if name != "_source"}


def deployment(release: str, model: str, launch: str, gpu: str) -> Deployment:
    line = read(shlex.split(f"vllm serve {model} {launch}"))
    return Deployment("vllm", Version(release), config_of(model), gpus.named(gpu), line)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = tomllib.loads((CORPUS / "vllm.toml").read_text())
    parser = argparse.ArgumentParser(description="Label the doctor's corpus by what the engine chooses.")
    parser.add_argument("--release", nargs="*", default=asked["releases"])
    parser.add_argument("--model", nargs="*", default=list(asked["launches"]))
    parser.add_argument("--gpu", nargs="*", default=list(gpus.KNOWN))
    parser.add_argument("--relabel", action="store_true", help="run nothing; conditions over the facts that are there")
    chosen = parser.parse_args(arguments)
    labels = read_labels() if LABELS.exists() else {}
    for release in [] if chosen.relabel else chosen.release:
        for gpu in chosen.gpu:
            asked_now = [case for case in cases() if case[0] in chosen.model and case[2] == gpu]
            for found in run(release, gpu, asked_now) if asked_now else ():
                labels[release] = merged(labels.get(release, []), found)
                write(labels)
    write(labels)


def merged(former: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was found over what was there, in the order of the launch lines; a line that is there no more is left out."""
    by_case = {_key(case): case for case in (*former, *found)}
    return [by_case[case] for case in cases() if case in by_case]


def _key(case: Mapping[str, Any]) -> tuple[str, str, str]:
    return case["model"], case["launch"], case["gpu"]


def read_labels() -> dict[str, list[dict[str, Any]]]:
    """{release: cases}, each with all its facts."""
    found = json.loads(LABELS.read_text())
    for case in (case for rows in found["releases"].values() for case in rows if "facts" in case):
        case["facts"] = {name: value for name, value in (found["usual"] | case["facts"]).items() if value is not None}
    releases: dict[str, list[dict[str, Any]]] = found["releases"]
    return releases


def write(labels: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    for release, case in ((release, case) for release, rows in labels.items() for case in rows if "facts" in case):
        case |= verdicts(release, case)
    LABELS.write_text(text_of(labels))


def text_of(labels: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One line a case, with the facts that most have told once; null: a fact that the engine does not say here."""
    every = [case["facts"] for rows in labels.values() for case in rows if "facts" in case]
    counts = {name: Counter(facts[name] for facts in every if name in facts) for facts in every for name in facts}
    usual = {name: count.most_common(1)[0][0] for name, count in counts.items()}

    def row(case: Mapping[str, Any]) -> str:
        if "facts" not in case:
            return json.dumps(case)
        facts = {name: case["facts"].get(name) for name in usual if case["facts"].get(name) != usual[name]}
        return json.dumps({**case, "facts": facts})

    parts = [
        f"{json.dumps(release)}: [\n" + ",\n".join(map(row, labels[release])) + "\n]" for release in sorted(labels, key=Version)
    ]
    return f'{{"usual": {json.dumps(usual)},\n"releases": {{\n' + ",\n".join(parts) + "\n}}\n"


def run(release: str, gpu: str, asked: Sequence[tuple[str, str, str]]) -> Iterator[list[dict[str, Any]]]:
    """The cases of each model, in a process for this release and GPU."""
    site = fetch.fetch("vllm", release)
    return streamed(_on_gpu, site, release, gpu, [(model, launch) for model, launch, _ in asked])


def _on_gpu(site: Path, release: str, gpu: str, asked: Sequence[tuple[str, str]]) -> Iterator[list[dict[str, Any]]]:
    from . import vllm_gpu

    os.environ.update(_ENVIRONMENT)
    sys.path.insert(0, str(site))
    vllm_gpu.emulate(vllm_gpu.DEVICES[gpu])
    import_module("vllm.engine.arg_utils")  # before the forks, for all of them
    registry: Any = import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda inspect: inspect()
    for model in dict.fromkeys(model for model, _ in asked):
        yield in_a_fork(_of_model, release, gpu, model, [launch for name, launch in asked if name == model])


def _of_model(release: str, gpu: str, model: str, launches: Sequence[str]) -> list[dict[str, Any]]:
    from vllm.model_executor.models import ModelRegistry

    found = []
    for number, launch in enumerate(launches):
        if not number:
            for architecture in config_of(model)["architectures"]:  # once for all launches
                if architecture in ModelRegistry.models:
                    ModelRegistry.models[architecture].inspect_model_cls()
        engine = in_a_fork(_engine, model, launch)
        found.append({"model": model, "launch": launch, "gpu": gpu, **engine})
        print(release, gpu, model, launch, engine.get("refused") or engine.get("failed", ""), file=sys.stderr, flush=True)
    return found


def _engine(model: str, launch: str) -> dict[str, Any]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from .vllm_facts import facts_of

    with tempfile.TemporaryDirectory() as folder:
        try:
            words = [_with_folders(word, Path(folder)) for word in shlex.split(launch)]
            parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
            args = parser.parse_args(["--model", str(folder_of(model, Path(folder))), *words])
            config = AsyncEngineArgs.from_cli_args(args).create_engine_config(UsageContext.OPENAI_API_SERVER)
        except (Exception, SystemExit) as error:
            return {"refused": _reason(error)}
        return {"facts": facts_of(config)}


def folder_of(model: str, under: Path) -> Path:
    folder = under / model
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(model)))
    return folder


def _with_folders(word: str, under: Path) -> str:
    return re.sub(r"\{([a-z][\w.-]+)\}", lambda name: str(folder_of(name[1], under)), word)


def _reason(error: BaseException) -> str:
    text = re.sub(r"/tmp/\S+", "FOLDER", str(error))
    match = re.search(r"(?:Value|Assertion) error, (.+?)(?: \[type=|$)", text, re.S)
    return f"{type(error).__name__}: {(match[1] if match else text).strip().splitlines()[0][:200] if text.strip() else ''}"


def verdicts(release: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """`hits`: the fixes whose condition holds over the engine's facts. `open`: those for which neither the engine nor the
    doctor has a fact. `by_hand`: the doctor's facts that decided where the engine has none. The doctor is told the engine's
    attention backend for these."""
    engine = case["facts"]
    told = deployment(release, case["model"], case["launch"], case["gpu"])
    assert told.launch is not None
    told.launch.options["attention-backend"] = str(engine["attention backend"])
    doctors = diagnosis.facts(told, facts_of_fixes("vllm"))

    def get(name: str) -> Fact:
        return known(engine[name], "engine") if name in engine else doctors(name)

    found = {fix.id: fix.hits for fix in FIXES if fix.engine == "vllm" and ledger.load(fix).verdict(release) == ledger.AFFECTED}
    answers = {name: condition(get).verdict for name, condition in found.items() if condition}
    by_hand = {
        name: doctors(name).values[0]
        for condition in found.values()
        for name in sorted(condition.names - set(engine) if condition else ())
        if len(doctors(name).values) == 1 and _matters(condition, name, get)
    }
    return {
        "hits": [name for name, verdict in answers.items() if verdict == HIT],
        "open": [name for name, verdict in answers.items() if verdict == POSSIBLE],
        "by_hand": by_hand,
    }


def _matters(condition: Any, name: str, get: Callable[[str], Fact]) -> bool:
    """Whether the verdict hangs on this fact: without it, the answer is open."""
    return bool(condition(lambda each: Fact(()) if each == name else get(each)).verdict == POSSIBLE)


def in_a_fork(step: Callable[..., Any], *args: Any) -> Any:
    """What `step` returns, in a process of its own: what an engine keeps for itself there is gone afterwards."""
    found = list(streamed(lambda: [_tried(step, *args)]))
    if not found:
        raise RuntimeError(f"{step.__name__} ended and said nothing")
    return found[0]


def streamed(step: Callable[..., Iterable[Any]], *args: Any) -> Iterator[Any]:
    """What `step` yields, in a process of its own, as it comes."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                for found in step(*args):
                    print(json.dumps(found), file=pipe, flush=True)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        yield from map(json.loads, pipe)
    os.waitpid(pid, 0)


def _tried(step: Callable[..., Any], *args: Any) -> Any:
    try:
        return step(*args)
    except Exception as error:
        if step is not _engine:
            traceback.print_exc()
            raise
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
