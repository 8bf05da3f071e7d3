"""Of three hundred fixes more, whose bugs this release lacks, an engine's import imports no folder."""

from __future__ import annotations

import json

import pytest

from tests.robustness.cost import TARGET
from tests.support import environments

ENGINE, RELEASE, MORE = "vllm", "0.33.0", 300
IMPORTED = f"""
import importlib, sys
importlib.import_module({TARGET[ENGINE]!r})
from attnfix.bootstrap.process import activation
ours = [name.split(".") for name in sys.modules if name.startswith("attnfix.patches.{ENGINE}.")]
folders = {{parts[3] for parts in ours if parts[-1] == "fix"}}
answer([sorted(folders), {{row["fix"]: row["state"] for row in activation().rows()}}])
"""


def crowded(environment: environments.Environment, folders: int) -> None:
    """Put `folders` fixes more into the installed index: as many code paths as the real ones have, healthy in every release.
    Their folders cannot be imported."""
    patches = environment.site / "attnfix" / "patches" / ENGINE
    path = patches / "index.json"
    index = json.loads(path.read_text())
    real = {name: line for name, line in index.items() if name.startswith("fix ")}
    everywhere = f"0-{len(index['releases']) - 1}"
    head = {name: index[name] for name in ("index_format", "digest_format", "releases", "targets")}
    lines = dict(real)
    for number, (name, line) in zip(range(folders), list(real.items()) * folders):
        dummy = f"{ENGINE}.dummy-{number}"
        lines[f"fix {dummy}"] = {**line, "codes": [["0" * 12, "not affected", everywhere]], "edited": []}
        for fixes in head["targets"].values():
            if name[len("fix ") :] in fixes:
                fixes.append(dummy)
        folder = patches / f"dummy_{number}"
        folder.mkdir()
        (folder / "__init__.py").write_text("raise AssertionError('this release has no such bug')\n")
    rows = {**head, **lines, **{name: value for name, value in index.items() if name.startswith(("code ", "file "))}}
    path.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in rows.items()) + "\n}\n")


@pytest.fixture(scope="module")
def both(wheels, tmp_path_factory):
    """The release beside the catalogue as it is, and beside one of three hundred fixes more."""
    made = [environments.make(tmp_path_factory.mktemp(name), wheels, ENGINE, RELEASE) for name in ("plain", "crowded")]
    crowded(made[1], MORE)
    return made


def test_only_folders_of_fixes_that_apply_are_imported(both):
    (plain, states), (among_many, of_all) = (environment.evaluate(IMPORTED) for environment in both)
    assert among_many == plain and 0 < len(plain) < len(states)
    assert {name: of_all[name] for name in states} == states and len(of_all) == len(states) + MORE
    assert {state for name, state in of_all.items() if name not in states} <= {"not affected", "dormant"}
