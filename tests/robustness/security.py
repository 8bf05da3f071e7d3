"""What an attacker who can place files, set variables or publish an archive could get out of attnfix."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from attnfix.compat.arming import switches
from attnfix.patches.catalogue import FIXES
from tests.robustness import Row
from tests.robustness.bad_archives import ARCHIVES
from tests.support import environments

ROOT = Path(__file__).resolve().parents[2]
#: Names under which attnfix, or what it needs, could be looked for
DECOYS = (
    "attnfix",
    "bootstrap.import_hook",
    "bootstrap.target_modules",
    "plugin",
    "compat",
    "patches",
    "kernels",
    "packaging",
    "rich",
    "wrapt",
    "activation",
)
Wheels = tuple[Path, Path]
ENGINE = "def serve():\n    return 'stock'\n"


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        say("the wheels")
        wheels = environments.build_wheels(home)
        rows = [_hijacked(home, wheels, quick), _owner_only(home, wheels), _not_unpickled(), _unpacked(home)]
        say("bandit and pip-audit")
        rows += [_bandit(), _audited(wheels[0])]
        if not quick:
            say("the wheels again")
            rows.append(_same_again(home, wheels))
        return rows


def _environment(home: Path, wheels: Wheels) -> environments.Environment:
    """attnfix beside a small package of an engine's name: its import is what makes attnfix import its own parts."""
    environment = environments.bare(home / "environment")
    environments.install(environment, *wheels)
    (environment.site / "sglang").mkdir()
    (environment.site / "sglang/__init__.py").write_text(ENGINE)
    return environment


# Another file


def _hijacked(home: Path, wheels: Wheels, quick: bool) -> Row:
    row = Row("ways to make attnfix run another file: names in the working and cache folders, ATTNFIX variables", 0)
    environment, marker = _environment(home, wheels), home / "ran"
    hostile = home / "hostile"
    _place_decoys(hostile, marker)
    for what, arguments, variables in _tries(environment, hostile, marker, quick):
        marker.unlink(missing_ok=True)
        command = [environment.python, *arguments]
        around = environment.variables(**variables)
        done = subprocess.run(command, env=around, cwd=hostile, capture_output=True, text=True, timeout=120)
        row.tried += 1
        if marker.exists():
            row.wrong.append(f"{what}: {', '.join(sorted(set(marker.read_text().split())))} ran")
        elif not any(sign in done.stdout for sign in ("ACTIVE", "zero-kv-rows", "usage: attnfix")):
            row.wrong.append(f"{what}: attnfix was not at work: {(done.stdout + done.stderr)[-300:]}")
    return row


def _place_decoys(hostile: Path, marker: Path) -> None:
    """Each of them says that it ran, as a module and as a package beside it, and as files that Python would pick up."""
    hostile.mkdir()
    for name in DECOYS:
        said = f"open({str(marker)!r}, 'a').write('{name} ')\n"
        (hostile / f"{name}.py").write_text(said)
        (hostile / "cache" / "releases" / name).mkdir(parents=True)
        (hostile / "cache" / "releases" / name / "__init__.py").write_text(said)
        (hostile / "cache" / f"{name}.py").write_text(said)
    (hostile / "attnfix.pth").write_text(f"import sys; open({str(marker)!r}, 'a').write('pth ')\n")
    (hostile / "program.py").write_text(PROGRAM)
    (hostile / "evil").write_text(f"#!/bin/sh\necho evil >> {marker}\n")
    (hostile / "evil").chmod(0o755)


PROGRAM = (
    "import sglang, attnfix, sys\n"
    "rows = attnfix.status()\n"
    "if any(type(f).__module__ == 'attnfix.bootstrap.import_hook' for f in sys.meta_path) and rows: print('ACTIVE')\n"
)


def _tries(
    environment: environments.Environment, hostile: Path, marker: Path, quick: bool
) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    ways = {"-c": ["-c", PROGRAM], "a script": ["program.py"], "-m": ["-m", "program"]}
    folders = {name: str(hostile) for name in ("ATTNFIX_RUN_DIR", "ATTNFIX_CACHE_DIR", "TMPDIR", "XDG_CACHE_HOME", "HOME")}
    for name, arguments in ways.items():
        yield name, arguments, {}
        yield f"{name}, folders of the environment", arguments, folders
        yield f"{name}, without the working folder on the path", ["-P", *(arguments if name != "-m" else ways["-c"])], {}
    cache = {"ATTNFIX_CACHE_DIR": str(hostile / "cache")}
    for words in (["list"], ["status"], ["doctor", "--help"]):
        for way in (["-m", "attnfix"], [str(environment.folder / "bin/attnfix")]):
            yield f"{Path(way[-1]).name} {' '.join(words)} by {way[0][:2]}", [*way, *words], cache
    variables = [*switches.GENERAL, *(fix.switch for fix in FIXES)]
    for variable in variables[:: 4 if quick else 1]:
        if variable == "ATTNFIX_RUN_DIR":
            continue
        for value in _values(hostile, marker):
            yield f"{variable}={value[:40]}", ways["-c"], {variable: value}


def _values(hostile: Path, marker: Path) -> list[str]:
    """A path, Python, a shell's substitution, a module."""
    touch = f"open({str(marker)!r}, 'a').write('value ')"
    return [str(hostile / "packaging.py"), f"exec({touch!r})", f"$({hostile / 'evil'})", "packaging:main"]


# Records and caches


def _owner_only(home: Path, wheels: Wheels) -> Row:
    """Under a umask that forbids nobody anything."""
    row = Row("files that attnfix makes are its owner's alone, whatever the umask", 0)
    environment = environments.Environment(home / "environment")
    made = home / "made"
    code = "import os; os.umask(0)\n" + PROGRAM + CACHE.format(wheel=str(wheels[0].parent))
    environment.run("-c", code, ATTNFIX_RUN_DIR=str(made / "run"), ATTNFIX_CACHE_DIR=str(made / "cache"))
    looked = [made / "run", *(made / "run").iterdir(), made / "cache/releases"]
    for path in looked:
        row.tried += 1
        if others := stat.S_IMODE(path.stat().st_mode) & 0o077:
            row.wrong.append(f"{path.relative_to(made)} gives {others:03o} to others")
    return row


CACHE = """
from pathlib import Path
from attnfix.compat.releases import fetch
with fetch._work_folder(fetch._cache_folder() / 'sglang-1.0'):
    pass
"""
UNPICKLERS = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


def _not_unpickled() -> Row:
    """No module reads a format that can run code; and a pickle in a record's place does not."""
    from attnfix.compat.status import process_record

    row = Row("modules that could unpickle, and a pickle in the place of a record or of a cached file", 0)
    for folder in ("attnfix", "compat", "patches", "kernels"):
        for path in (ROOT / folder).rglob("*.py"):
            row.tried += 1
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found = UNPICKLERS & {name.partition(".")[0] for name in names}
                row.wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in found]
    with tempfile.TemporaryDirectory() as folder:
        marker, place = Path(folder) / "ran", Path(folder) / "host-1-x.attnfix"
        payload = pickle.dumps(_Touch(str(marker)))
        for data in (payload, process_record.MAGIC + payload, (process_record.MAGIC + bytes(4088)) + payload):
            place.write_bytes(data)
            row.tried += 1
            if process_record.read(place) is not None or marker.exists():
                row.wrong.append("a pickle was read as a record")
    return row


class _Touch:
    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.path,)


# Archives


def _unpacked(home: Path) -> Row:
    """Each archive is refused, or unpacked without the file in question; nothing appears outside its folder."""
    from attnfix.compat.releases.errors import ReleaseError

    row = Row("hostile archives: paths that leave the folder, links, devices, bombs, hashes that do not fit", 0)
    for name, (attack, allowed) in ARCHIVES.items():
        with tempfile.TemporaryDirectory(dir=home) as folder:
            into = Path(folder) / "into"
            into.mkdir()
            row.tried += 1
            try:
                attack(into)
                outcome = "unpacked"
            except ReleaseError:
                outcome = "refused"
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            outside = [str(path) for path in Path(folder).rglob("*") if into not in path.parents and path != into]
            outside = [path for path in outside if not path.endswith(".archive")]
            odd = [path.name for path in into.rglob("*") if path.is_symlink() or path.name == "odd.py"]
            if outcome not in allowed or outside or odd:
                row.wrong.append(f"{name}: {outcome} {' '.join([*outside, *odd])}".rstrip())
    return row


# Tools


def _bandit() -> Row:
    row = Row("findings of bandit in what is installed and in scripts (exceptions with their reasons in pyproject.toml)", 0)
    command = [sys.executable, "-m", "bandit", "-c", "pyproject.toml", "-q", "-f", "json", "-r"]
    folders = ("attnfix", "compat", "patches", "kernels", "scripts")
    done = subprocess.run([*command, *folders], cwd=ROOT, capture_output=True, text=True)
    if not done.stdout:
        row.not_run.append(f"bandit: {done.stderr.strip()[-200:]}")
        return row
    found = json.loads(done.stdout)
    row.tried = len(found["metrics"]) - 1
    row.wrong = [f"{one['filename']}:{one['line_number']} {one['test_id']} {one['issue_text']}" for one in found["results"]]
    row.wrong += [f"bandit could not read {one['filename']}" for one in found["errors"]]
    row.figures["lines"] = f"{found['metrics']['_totals']['loc']:,}"
    return row


def _audited(wheel: Path) -> Row:
    """The run-time requirements, as they are installed here."""
    row = Row("known vulnerabilities in what attnfix needs (pip-audit)", 0)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        from importlib.metadata import version

        names = ("packaging", "rich", "wrapt", "markdown-it-py", "mdurl", "pygments")
        pinned.write("".join(f"{name}=={version(name)}\n" for name in names))
        pinned.flush()
        options = ["--no-deps", "--disable-pip", "--format", "json", "--timeout", "20", "-r", pinned.name]
        done = subprocess.run([sys.executable, "-m", "pip_audit", *options], capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        row.not_run.append(
            f"pip-audit: its service does not answer here ({(done.stderr.strip().splitlines() or ['?'])[-1][-160:]})"
        )
        return row
    row.tried = len(found)
    row.wrong = [f"{one['name']} {one['version']}: {vuln['id']}" for one in found for vuln in one.get("vulns", ())]
    return row


def _same_again(home: Path, wheels: Wheels) -> Row:
    row = Row("builds of one tree, equal to the byte", 2)
    second = home / "second"
    second.mkdir()
    for wheel, again in zip(wheels, environments.build_wheels(second)):
        one, other = (hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in (wheel, again))
        row.figures[f"sha256 of {wheel.name}"] = one
        if one != other:
            row.wrong.append(f"two builds of {wheel.name} from one tree differ: {one}, {other}")
    return row
