"""Other patchers in the same interpreter: sglang's HookRegistry, kvcached, OpenTelemetry, ddtrace, another attnfix.

On the small engine each order is tried and its result compared with numbers; beside a real engine, that the import goes as ever
and which fixes stand. The packages are the newest that pip finds, installed into a folder of the run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import Row
from .faults import REAL

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TIMEOUT_S = 420
#: Releases whose registry differs: from 0.5.11 on sglang has one
REGISTRIES = ("0.5.11", "0.5.20")
#: ddtrace asks no agent and no server
QUIET = {"DD_INSTRUMENTATION_TELEMETRY_ENABLED": "0", "DD_REMOTE_CONFIGURATION_ENABLED": "0", "DD_TRACE_ENABLED": "1"}
IMPORT = """
import importlib.machinery, json, sys
from attnfix.prove import stubs
ours = next(finder for finder in sys.meta_path if type(finder).__module__ == "attnfix.bootstrap.import_hook")
stubs.install({engine!r})
{patch}
if not {first}:  # behind every other patcher's finder
    sys.meta_path.remove(ours)
    sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), ours)
elif sys.meta_path[0] is not ours:
    sys.meta_path.remove(ours)
    sys.meta_path.insert(0, ours)
for name in {modules!r}:
    importlib.import_module(name)
{after}
import attnfix
print("ANSWER" + json.dumps([bool({there}), {{row["fix"]: row["state"] for row in attnfix.status()}}]))
"""
KVCACHED = "import site; sys.path.append({folder!r}); site.addsitedir({folder!r})"


@dataclass
class Beside:
    """A real engine that is imported beside a patcher: `launch` stands before the Python, `there` says that it is at work."""

    name: str
    engine: str
    release: str
    modules: tuple[str, ...]
    expected: dict[str, str]
    there: str
    patch: str = ""
    after: str = ""
    launch: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        folder = Path(scratch)
        subprocess.run([sys.executable, HERE / "small_engine.py", folder / "small"], check=True, timeout=300)
        rows = [_registry(folder, say), _copies(folder, say)]
        if quick:
            rows[0].not_run.append("OpenTelemetry, ddtrace, kvcached and real engines: in the full run")
            return rows
        beside = [*_opentelemetry(folder, rows, say), *_ddtrace(folder, rows, say), *_kvcached(folder, rows, say)]
        rows.append(_beside([*beside, _real_registry()], folder, say))
        return rows


# On the small engine


def _small(row: Row, patcher: str, folder: Path, path: str = "", **request: str) -> None:
    asked = json.dumps({"patcher": patcher, "folder": str(folder / "small"), **request})
    environment = {**_clean(), **QUIET, "PYTHONPATH": path}
    command = [sys.executable, str(HERE / "other_patchers_run.py"), asked]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    row.tried += len(answers)
    row.wrong += [f"{answer['case']}: {answer['wrong']}" for answer in answers if answer["wrong"]]
    if done.returncode or not answers:
        row.wrong.append(f"{patcher} ended with {done.returncode}: {done.stderr[-500:]}")


def _registry(folder: Path, say: Callable[[str], None]) -> Row:
    from attnfix.compat.releases import fetch

    row = Row("sglang's HookRegistry on targets: before, after, around, replace, replace a class; each order", 0)
    for release in REGISTRIES:
        file = fetch.fetch("sglang", release) / "sglang/srt/plugins/hook_registry.py"
        _small(row, "hook_registry", folder, file=str(file))
    say(f"{row.what}: {row.tried}")
    return row


def _copies(folder: Path, say: Callable[[str], None]) -> Row:
    """Copies of this tree under other versions: in place of this one, beside it, behind both hooks."""
    row = Row("a second copy of attnfix, of another version: both loaded, each order; the first on the path; both hooks", 0)
    copy, other = (_copy(folder / version, version) for version in ("9.9.9", "1.1.1"))
    _small(row, "copy", folder, copy=str(copy))
    script = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); LATER\nimport small_engine, pathlib, attnfix, json\n"
        f"small_engine.put_in_place(pathlib.Path({str(folder / 'small')!r})); small_engine.load(); attnfix.activate()\n"
        "from attnfix.compat.status import process_record; from attnfix.compat.status import recorder; import os\n"
        "own = [record['attnfix'] for record in process_record.read_all() if record['pid'] == os.getpid()]\n"
        "print('ANSWER' + json.dumps([small_engine.use().armed, own, attnfix.__file__]))"
    )
    later = f"sys.path.insert(0, {str(copy)!r})"
    ours = os.pathsep.join([str(ROOT / "attnfix/bootstrap/path_entry"), str(copy)])
    for what, path, inside, version in (
        ("first on the path", str(copy), "", "9.9.9"),
        ("first on the path from within", str(other), later, "1.1.1"),
        ("first on the path, with the folder of `attnfix run`", ours, "", "9.9.9"),
    ):
        environment = {**_clean(), "PYTHONPATH": path, "ATTNFIX_RUN_DIR": str(folder / "run")}
        told = _answer([sys.executable, "-c", script.replace("LATER", inside)], environment, folder)
        row.tried += 1
        if not isinstance(told, list) or told[:2] != [True, [version]]:
            row.wrong.append(f"{what}: {told}, not armed once with a record of {version}")
    say(f"{row.what}: {row.tried}")
    return row


def _copy(folder: Path, version: str) -> Path:
    for name, to in (("attnfix", "attnfix"), *((name, f"attnfix/{name}") for name in ("compat", "patches", "kernels"))):
        shutil.copytree(ROOT / name, folder / to, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    metadata = folder / f"attnfix-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: attnfix\nVersion: {version}\n")
    return folder


# Packages


def _installed(folder: Path, *projects: str) -> str:
    """Install into `folder`; names and versions of `projects`. Raises CalledProcessError."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *projects]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    found = [next(folder.glob(f"{project.replace('-', '_')}-*.dist-info")).name for project in projects]
    return ", ".join(name.removesuffix(".dist-info").replace("_", "-") for name in found)


def _package(
    what: str, projects: tuple[str, ...], folder: Path, rows: list[Row], say: Callable[[str], None]
) -> Iterator[Row]:  # fmt: skip
    """A row for a patcher that pip installs; none where pip cannot."""
    row = Row(what, 0)
    rows.append(row)
    try:
        row.figures["tried with"] = _installed(folder, *projects)
        yield row
    except (subprocess.SubprocessError, StopIteration) as error:
        said = getattr(error, "stderr", None) or str(error)
        row.not_run.append(f"pip did not install {', '.join(projects)}: {said.strip().splitlines()[-1]}")
    say(f"{what}: {row.tried}")


def _opentelemetry(folder: Path, rows: list[Row], say: Callable[[str], None]) -> Iterator[Beside]:
    site = folder / "opentelemetry"
    what = "an OpenTelemetry instrumentor on targets, each order"
    for row in _package(what, ("opentelemetry-distro", "opentelemetry-instrumentation"), site, rows, say):
        _small(row, "opentelemetry", folder, str(site))
        for engine, release, modules, fixes in REAL:
            yield Beside(
                "opentelemetry-instrument", engine, release, modules, dict.fromkeys(fixes, "installed"),
                there="'opentelemetry.instrumentation.auto_instrumentation' in sys.modules",
                launch=(sys.executable, str(site / "bin/opentelemetry-instrument")), variables={"PYTHONPATH": str(site)},
            )  # fmt: skip


def _ddtrace(folder: Path, rows: list[Row], say: Callable[[str], None]) -> Iterator[Beside]:
    site = folder / "ddtrace"
    for row in _package("ddtrace on targets: bytecode in place, tracer.wrap, each order", ("ddtrace",), site, rows, say):
        _small(row, "ddtrace", folder, str(site))
        for engine, release, modules, fixes in REAL:
            yield Beside(
                "ddtrace-run", engine, release, modules, dict.fromkeys(fixes, "installed"),
                there="'ddtrace.bootstrap.sitecustomize' in sys.modules or 'ddtrace' in sys.modules",
                launch=(sys.executable, str(site / "bin/ddtrace-run")), variables={"PYTHONPATH": str(site), **QUIET},
            )  # fmt: skip


def _kvcached(folder: Path, rows: list[Row], say: Callable[[str], None]) -> Iterator[Beside]:
    """The Python part of its newest source archive: its extension needs a CUDA toolkit to build."""
    from attnfix.compat.releases import pip_config
    from attnfix.compat.releases.index import Index

    index, site = Index(pip_config.read()), folder / "kvcached"
    places, failures = index.archives("kvcached")
    archives = sorted((archive for place in places for archive in place if archive.kind == "sdist"), key=lambda a: a.version)
    if not archives:
        rows.append(Row("kvcached's autopatch", 0, not_run=[f"no source archive of kvcached: {failures}"]))
        return
    index.download(archives[-1], folder / archives[-1].filename, 1 << 26, lambda size: None)
    shutil.unpack_archive(folder / archives[-1].filename, folder / "unpacked", filter="data")
    (tree,) = (folder / "unpacked").iterdir()
    shutil.copytree(tree / "kvcached", site / "kvcached")
    shutil.copy(tree / "kvcached_autopatch.pth", site)
    for engine, release, modules, fixes in REAL:
        yield Beside(
            f"kvcached {archives[-1].version} (its Python part)", engine, release, modules, dict.fromkeys(fixes, "installed"),
            there=f"'kvcached.integration.{engine}.patches' in sys.modules",
            patch=KVCACHED.format(folder=str(site)), variables={"ENABLE_KVCACHED": "true"},
        )  # fmt: skip


# Beside a real engine


def _real_registry() -> Beside:
    """A hook around a real target, after attnfix: noticed at the first call, and all of the fix is off."""
    target = "sglang.srt.layers.attention.flashinfer_backend.FlashInferMultiStepDraftBackend.init_cuda_graph_state"
    after = (
        "from sglang.srt.plugins.hook_registry import HookRegistry, HookType\n"
        "before = {row['fix']: row['state'] for row in __import__('attnfix').status()}\n"
        "assert before['sglang.draft-kv-indices'] == 'installed', before\n"
        f"HookRegistry.register({target!r}, lambda original, *args, **kwargs: original(*args, **kwargs), HookType.AROUND)\n"
        "HookRegistry.apply_hooks()\n"
    )
    return Beside(
        "HookRegistry around a target", "sglang", "0.5.12", (target.rpartition(".")[0].rpartition(".")[0],),
        {"sglang.draft-kv-indices": "conflict"}, there="HookRegistry._patched", after=after,
    )  # fmt: skip


def _beside(cases: list[Beside], folder: Path, say: Callable[[str], None]) -> Row:
    row = Row("real engines imported beside each of them, attnfix's finder first and last", 0)
    jobs = [(case, first) for case in cases for first in (True, False)]
    with ThreadPoolExecutor(2) as pool:
        for (case, first), found in zip(jobs, pool.map(lambda job: _imported(*job, folder), jobs)):
            order = "first" if first else "last"
            say(f"{case.name}, {case.engine} {case.release}, attnfix {order}: {found or 'as expected'}")
            row.tried += 1
            if found:
                row.wrong.append(f"{case.name}, {case.engine} {case.release}, attnfix {order}: {found}")
    return row


def _imported(case: Beside, first: bool, folder: Path) -> str | None:
    from attnfix.compat.releases import fetch
    from tests.support.environments import CPU

    site = str(fetch.fetch(case.engine, case.release))
    path = os.pathsep.join(filter(None, (case.variables.get("PYTHONPATH"), site)))
    environment = {**_clean(), **CPU, **case.variables, "PYTHONPATH": path, "ATTNFIX_RUN_DIR": str(folder / "run")}
    script = IMPORT.format(
        engine=case.engine, patch=case.patch, first=first, modules=case.modules, after=case.after, there=case.there
    )  # fmt: skip
    told = _answer([*case.launch, sys.executable, "-c", script], environment, folder)
    if not isinstance(told, list):
        return told
    there, states = told
    if not there:
        return "the patcher was not at work"
    wrong = {fix: states[fix] for fix, expected in case.expected.items() if states[fix] != expected}
    return f"{wrong}, not {case.expected}" if wrong else None


def _answer(command: list[str], environment: dict[str, str], folder: Path) -> Any:
    """What a process answers, else a sentence."""
    try:
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT_S} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    if lines:
        return json.loads(lines[-1].removeprefix("ANSWER"))
    return f"ended with {done.returncode}: {done.stderr.strip()[-400:]}"


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("ATTNFIX", "PYTHON", "ENABLE_KVCACHED"))}
