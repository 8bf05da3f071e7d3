"""The doctor's corpus in tests/unit/doctor/corpus, for both engines: ENGINE.toml has launch lines, ENGINE.json their labels.

`read_labels` has a row for each release and case: `facts` that the engine chose, `hits` by those facts and the ledger,
`by_hand` the fixes that the engine's facts alone do not decide, and the doctor's own do; or `refused`, the engine's error.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import tomllib
from packaging.version import Version

from attnfix.compat.doctor import diagnosis, gpus
from attnfix.compat.doctor.condition import HIT, POSSIBLE, Facts, known, unknown
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES, facts_of_fixes

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "unit" / "doctor" / "corpus"
_SERVE = {"sglang": "sglang serve --model-path", "vllm": "vllm serve"}
#: {NAME} in a launch line
_ANOTHER_MODEL = re.compile(r"\{([a-z][\w.-]*)\}")


@cache
def config_of(model: str) -> dict[str, Any]:
    config = json.loads((CORPUS / "models" / f"{model}.json").read_text())
    return {name: value for name, value in config.items() if name != "_source"}


class Case(NamedTuple):
    """`line`: options as typed."""

    model: str
    gpu: str
    line: str

    def deployment(self, engine: str, release: str) -> Deployment:
        launch = read(shlex.split(f"{_SERVE[engine]} {self.model} {self.line}"), engine)
        return Deployment(engine, Version(release), config_of(self.model), gpus.named(self.gpu), launch)

    def options(self, models: Path) -> list[str]:
        """The words of the line, where `models` has a folder for each model."""
        return shlex.split(_ANOTHER_MODEL.sub(lambda name: str(models / name[1]), self.line))


def write_models(models: Path) -> None:
    for file in (CORPUS / "models").glob("*.json"):
        (models / file.stem).mkdir()
        (models / file.stem / "config.json").write_text(json.dumps(config_of(file.stem)))


def launches(engine: str) -> dict[str, Any]:
    """`releases`, and the `cases` that each is asked."""
    found = tomllib.loads((CORPUS / f"{engine}.toml").read_text())
    return {"releases": found["releases"], "cases": list(_cases(found["launches"]))}


def _cases(by_model: dict[str, list[str]]) -> Iterator[Case]:
    for model, lines in by_model.items():
        for line in lines:
            names, _, options = line.partition(":")
            for gpu in names.split():
                yield Case(model, gpu, options.strip())


def labels(engine: str, case: Case, release: str, chosen: dict[str, Any]) -> dict[str, list[str]]:
    """The fixes whose condition holds over the engine's facts, and those of them and others that the doctor's had to decide.
    The doctor is told the attention backend that the engine chose."""
    deployment = case.deployment(engine, release)
    if deployment.launch and (backend := chosen.get("attention backend")):
        deployment.launch.options["attention-backend"] = backend
    doctors = diagnosis.facts(deployment, facts_of_fixes(engine))
    found: dict[str, list[str]] = {"hits": [], "by_hand": []}
    for fix in (fix for fix in FIXES if fix.engine == engine):
        code = ledger.load(fix).verdict(release)
        if diagnosis.answer(fix, code, "", of_both(chosen, doctors)).verdict == HIT:
            found["hits"].append(fix.id)
        if diagnosis.answer(fix, code, "", of_both(chosen, unknown)).verdict == POSSIBLE:
            found["by_hand"].append(fix.id)
    return found


def of_both(chosen: dict[str, Any], others: Facts) -> Facts:
    return lambda name: known(chosen[name]) if name in chosen else others(name)


def main(engine: str, ask: Callable[[str, list[Case]], Sequence[dict[str, Any]]], words: list[str]) -> None:
    """`ask` answers for a release with {facts}, or {refused} or {error}, for each case."""
    corpus = launches(engine)
    again = words == ["labels"]
    for release in corpus["releases"] if again or not words else words:
        said = read_labels(engine)[release] if again else ask(release, corpus["cases"])
        cases = [Case(*row["case"]) for row in said] if again else corpus["cases"]
        rows = [_row(engine, case, release, answer) for case, answer in zip(cases, said, strict=True)]
        _write(engine, {**read_labels(engine), release: rows}, corpus["releases"])
        for row in rows:
            if "refused" in row and not again:
                print(release, *row["case"], row["refused"])
        by_hand = Counter(fix for row in rows for fix in row.get("by_hand", ()))
        print(f"{release}: {sum('hits' in row for row in rows)} of {len(rows)} cases; by hand: {dict(by_hand)}", flush=True)


def _row(engine: str, case: Case, release: str, answer: dict[str, Any]) -> dict[str, Any]:
    if "facts" in answer:
        return {"case": list(case), "facts": answer["facts"], **labels(engine, case, release, answer["facts"])}
    return {"case": list(case), "refused": answer.get("refused") or answer["error"]}


def read_labels(engine: str) -> dict[str, list[dict[str, Any]]]:
    """{release: rows}, each with all its facts."""
    file = CORPUS / f"{engine}.json"
    found = json.loads(file.read_text()) if file.exists() else {"usual": {}, "releases": {}}
    releases: dict[str, list[dict[str, Any]]] = found["releases"]
    for row in (row for rows in releases.values() for row in rows if "facts" in row):
        row["facts"] = {name: value for name, value in (found["usual"] | row["facts"]).items() if value is not None}
    return releases


def _write(engine: str, rows_by: dict[str, list[dict[str, Any]]], releases: list[str]) -> None:
    """The facts that most rows have stand once, under `usual`; null: a fact that the engine does not say there."""
    chosen = [row["facts"] for rows in rows_by.values() for row in rows if "facts" in row]
    counts = {name: Counter(facts[name] for facts in chosen if name in facts) for facts in chosen for name in facts}
    usual = {name: count.most_common(1)[0][0] for name, count in counts.items()}

    def text(row: dict[str, Any]) -> str:
        facts = row.get("facts")
        if facts is None:
            return json.dumps(row)
        return json.dumps(row | {"facts": {name: facts.get(name) for name in usual if facts.get(name) != usual[name]}})

    rows_of = (
        f'"{release}": [\n' + ",\n".join(map(text, rows_by[release])) + "\n]" for release in releases if release in rows_by
    )
    (CORPUS / f"{engine}.json").write_text(
        f'{{"usual": {json.dumps(usual)},\n"releases": {{\n' + ",\n".join(rows_of) + "\n}}\n"
    )
