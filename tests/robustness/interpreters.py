"""Gate, arming, command line and activation paths on every Python, beside every wrapt; torch's names in every torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.robustness import Row, plain_environment, torch_names
from tests.support import environments
from tests.support.interpreters import PRESENT, VERSIONS

ROOT = Path(__file__).resolve().parents[2]
#: Versions of torch that engines of the ledgers pin, and the newest
TORCH = ("2.4.0", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    return [_cells(quick, say), _torch(TORCH[::5] if quick else TORCH, say)]


def _cells(quick: bool, say: Callable[[str], None]) -> Row:
    """The sessions of noxfile.py, each a virtual environment with the wheel, a wrapt and no torch."""
    row = Row(
        "Python, beside a wrapt, without torch: unit tests of gate, arming, records, command line; every activation path",
        0,
    )
    row.not_run += [f"Python {version}: not on this machine" for version in VERSIONS if version not in PRESENT]
    if len(PRESENT) < 3:
        row.wrong.append(f"only {', '.join(PRESENT)} here: three must run")
    with tempfile.TemporaryDirectory() as folder:
        say("a wheel")
        wheel = environments.build_wheel(Path(folder))
        paths = os.pathsep.join([*(str(Path(path).parent) for path in PRESENT.values()), os.environ["PATH"]])
        around = plain_environment()
        command = [sys.executable, "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"), "--envdir", f"{folder}/nox"]
        for session in _listed(command, quick):
            say(session)
            one = [*command, "-s", session, "--", str(wheel)]
            done = subprocess.run(one, cwd=ROOT, env={**around, "PATH": paths}, capture_output=True, text=True)
            said = done.stdout + done.stderr
            if re.search(r"skipped|Missing interpreters", said) and "activation paths: " not in said:
                row.not_run.append(f"{session}: {said.strip().splitlines()[-1]}")
                continue
            row.tried += 1
            if done.returncode:
                row.wrong.append(f"{session}: {_last_words(said)}")
            elif found := re.search(r"activation paths: (.*)", said):
                passed = re.search(r"(\d+) passed", said)
                row.figures[found[1]] = f"{passed[1] if passed else '?'} tests"
            shutil.rmtree(f"{folder}/nox", ignore_errors=True)
    return row


def _listed(command: list[str], quick: bool) -> list[str]:
    done = subprocess.run([*command, "-l", *(["-t", "boundary"] if quick else [])], cwd=ROOT, capture_output=True, text=True)
    return re.findall(r"^\* (\w+\(.+?\))", done.stdout, re.M)


def _last_words(said: str) -> str:
    lines = [line for line in said.splitlines() if re.match(r"(FAILED|ERROR|E  |.*Error|.*exit )", line)]
    return " | ".join(lines[:4])[:600] or said[-400:]


def _torch(versions: tuple[str, ...], say: Callable[[str], None]) -> Row:
    row = Row("names of torch that a serving process uses, in the sources of other versions of torch", 0)
    names = torch_names.used()
    row.figures["names"] = str(len(names))
    row.wrong += [f"the installed torch has no torch.{name}" for name in torch_names.missing_here(names)]
    row.tried += len(names)
    for version in versions:
        say(f"torch {version}")
        try:
            with _wheel(version) as wheel:
                lacks = torch_names.missing_in(wheel, names)
        except Exception as error:  # no network, no such wheel
            row.not_run.append(f"torch {version}: {type(error).__name__}: {error}")
            continue
        row.tried += len(names)
        for name in lacks:
            if name in torch_names.OPTIONAL:
                row.figures[f"torch {version}"] = f"no torch.{name}, which is optional"
            else:
                row.wrong.append(f"torch {version} has no torch.{name} ({', '.join(names[name])})")
    return row


def _wheel(version: str) -> zipfile.ZipFile:
    """A wheel of torch on the index, its files read as they are asked for."""
    from remotezip import RemoteZip

    from attnfix.compat.releases import pip_config
    from attnfix.compat.releases.index import Index

    index = Index(pip_config.read())
    places, _ = index.archives("torch")
    for archive in (archive for place in places for archive in place):
        if str(archive.version) == version and "cp311-cp311-manylinux" in archive.filename and "x86_64" in archive.filename:
            return RemoteZip(archive.url, session=index, support_suffix_range=False)
    raise LookupError("no wheel of it on the index")
