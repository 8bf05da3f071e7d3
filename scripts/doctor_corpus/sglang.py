"""Labels of the doctor's corpus for sglang, tests/unit/doctor/corpus/sglang.json.

    python -m scripts.doctor_corpus.sglang [RELEASE…]   asks releases, each in a process of its own, and labels what they say
    python -m scripts.doctor_corpus.sglang labels       labels again what they said

The file is {release: rows} with a row for each case: `facts` that the engine chose, `hits` by those facts and the ledger,
`by_hand` the fixes that the engine's facts alone do not decide, and the doctor's own do; or `refused`, the engine's error.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
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
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import FIXES, facts_of_fixes

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "unit" / "doctor" / "corpus"


@cache
def _config(model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CORPUS / "models" / f"{model}.json").read_text())
    return found


class Case(NamedTuple):
    """`line`: options as typed, variables before them."""

    model: str
    gpu: str
    line: str

    def config(self) -> dict[str, Any]:
        return _config(self.model)

    def deployment(self, release: str) -> Deployment:
        words = shlex.split(f"sglang serve --model-path {self.model} {self.line}")
        launch = read(words, "sglang")
        return Deployment("sglang", Version(release), self.config(), gpus.named(self.gpu), launch)


def cases(launches: dict[str, list[str]]) -> Iterator[Case]:
    for model, lines in launches.items():
        for line in lines:
            names, _, options = line.partition(":")
            for gpu in names.split():
                yield Case(model, gpu, options.strip())


def asked(release: str, of: list[Case]) -> list[dict[str, Any]]:
    """What the release chooses for each case."""
    with tempfile.TemporaryDirectory() as folder:
        for file in (CORPUS / "models").glob("*.json"):
            (Path(folder) / file.stem).mkdir()
            config = {name: value for name, value in json.loads(file.read_text()).items() if name != "_source"}
            (Path(folder) / file.stem / "config.json").write_text(json.dumps(config))
        request = [
            {
                "model": f"{folder}/{case.model}",
                "architecture": case.config()["architectures"][0],
                "launch": shlex.split(case.line.replace("{", f"{folder}/").replace("}", "")),
                "variables": {},
                "gpu": case.gpu,
            }
            for case in of
        ]
        site = fetch.fetch("sglang", release)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
        command = [sys.executable, "-m", "scripts.doctor_corpus.sglang_release"]
        done = subprocess.run(command, input=json.dumps(request), env=environment, cwd=ROOT, capture_output=True, text=True)
    said = next((line for line in done.stdout.splitlines() if line.startswith("labels ")), None)
    if said is None:
        raise SystemExit(f"sglang {release} did not answer: {done.stderr[-2000:]}")
    answers: list[dict[str, Any]] = json.loads(said.removeprefix("labels "))
    return answers


def labels(case: Case, release: str, engine: dict[str, Any]) -> dict[str, list[str]]:
    """The fixes whose condition holds over the engine's facts, and those of them and others that the doctor's had to decide."""
    doctors = diagnosis.facts(case.deployment(release), facts_of_fixes("sglang"))
    found: dict[str, list[str]] = {"hits": [], "by_hand": []}
    for fix in (fix for fix in FIXES if fix.engine == "sglang"):
        code = ledger.load(fix).verdict(release)
        if diagnosis.answer(fix, code, "", _of_both(engine, doctors)).verdict == HIT:
            found["hits"].append(fix.id)
        if diagnosis.answer(fix, code, "", _of_both(engine, unknown)).verdict == POSSIBLE:
            found["by_hand"].append(fix.id)
    return found


def _of_both(engine: dict[str, Any], others: Facts) -> Facts:
    return lambda name: known(engine[name]) if name in engine else others(name)


def main(words: list[str]) -> None:
    corpus = tomllib.loads((CORPUS / "sglang.toml").read_text())
    file = CORPUS / "sglang.json"
    of = list(cases(corpus["launches"]))
    again = words == ["labels"]
    for release in corpus["releases"] if again or not words else words:
        said = _rows(file)[release] if again else asked(release, of)
        before = [Case(*row["case"]) for row in said] if again else of
        rows = [_row(case, release, answer) for case, answer in zip(before, said, strict=True)]
        _write(file, {**_rows(file), release: rows}, corpus["releases"])
        for row in rows:
            if "refused" in row and not again:
                print(release, *row["case"], row["refused"])
        by_hand = Counter(fix for row in rows for fix in row.get("by_hand", ()))
        print(f"{release}: {sum('hits' in row for row in rows)} of {len(rows)} cases; by hand: {dict(by_hand)}", flush=True)


def _row(case: Case, release: str, answer: dict[str, Any]) -> dict[str, Any]:
    if "facts" in answer:
        return {"case": list(case), "facts": answer["facts"], **labels(case, release, answer["facts"])}
    return {"case": list(case), "refused": answer.get("refused") or answer["error"]}


def _rows(file: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _write(file: Path, rows_by: dict[str, list[dict[str, Any]]], releases: list[str]) -> None:
    rows_of = (
        f'"{release}": [\n' + ",\n".join(map(json.dumps, rows_by[release])) + "\n]"
        for release in releases
        if release in rows_by
    )
    file.write_text("{\n" + ",\n".join(rows_of) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
