"""Virtual environments as a user has them: the wheel installed by pip, an engine laid out as pip would beside it.

torch and what the engines import come from the environment that runs the tests, by a path line: its own `.pth` files are not
processed there, so attnfix is active in the new environment through the wheel's file or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnfix.prove.runner import CPU

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Environment:
    folder: Path
    engine: str | None = None

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def run(self, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess:
        """Run this environment's Python; ATTNFIX variables of the caller do not reach it."""
        done = self._started(arguments, {"env": self.variables(**environment), "cwd": self.folder, "timeout": 300})
        if check and done.returncode:
            raise AssertionError(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def _started(self, arguments: tuple[str, ...], how: dict[str, Any]) -> subprocess.CompletedProcess:
        return subprocess.run([self.python, *arguments], capture_output=True, text=True, **how)

    def variables(self, **environment: str) -> dict[str, str]:
        """What a process of this environment has around it."""
        ours = "ATTNFIX", "PYTHON", "TORCHINDUCTOR"  # the last: torch sets it in a process that has compiled something
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**clean, **CPU, "ATTNFIX_RUN_DIR": str(self.folder / "run"), **environment}

    def evaluate(self, code: str, *, stubs: bool = True, **environment: str) -> Any:
        """Run `code` and return what it passes to `answer(value)`. With `stubs`, missing compiled packages are stubbed."""
        head = "import json\ndef answer(value): print('\\nANSWER' + json.dumps(value))\n"
        if stubs and self.engine:
            head += f"from attnfix.prove import stubs\nstubs.install({self.engine!r})\n"
        done = self.run("-c", head + code, **environment)
        lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
        assert lines, f"no answer\n{done.stdout}\n{done.stderr}"
        return json.loads(lines[-1][len("ANSWER") :])


@dataclass(frozen=True)
class Forked(Environment):
    """A release beside the installed wheel, its processes forks of one Python that has imported torch (attnfix/prove/warm.py).

    For tests that ask nothing about an interpreter's start; the release is on PYTHONPATH, not in site-packages.
    """

    parent: Any = None
    release: str = ""

    def _started(self, arguments: tuple[str, ...], how: dict[str, Any]) -> subprocess.CompletedProcess:
        return self.parent.run(arguments, **how)

    def variables(self, **environment: str) -> dict[str, str]:
        return super().variables(PYTHONPATH=self.release, **environment)


def source_tree(folder: Path) -> Path:
    """A copy of this tree to build in: builds write into their tree, and tests run side by side."""
    tree = folder / "tree"
    made = shutil.ignore_patterns(".*", "compiled", "*.egg-info", "__pycache__")

    def left_out(parent: str, names: list[str]) -> set[str]:
        return made(parent, names) | ({"build", "dist"} if Path(parent) == ROOT else set())

    shutil.copytree(ROOT, tree, ignore=left_out)
    return tree


def build_wheel(folder: Path) -> Path:
    """Build the wheel of `attnfix` with the build requirements that are installed here."""
    return _built(folder, source_tree(folder), "attnfix")


def build_wheels(folder: Path) -> tuple[Path, Path]:
    """Those of `attnfix` and of `attnfix-prove`, of one tree."""
    tree = source_tree(folder)
    return _built(folder, tree, "attnfix"), _built(folder, tree / "prove", "attnfix_prove")


def _built(folder: Path, project: Path, name: str) -> Path:
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(project)], check=True, capture_output=True)
    (wheel,) = folder.glob(f"{name}-*.whl")
    return wheel


def bare(folder: Path) -> Environment:
    """A virtual environment that sees the packages of this one, but none of its `.pth` files."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    environment = Environment(folder)
    (environment.site / "engine-requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def install(environment: Environment, *wheels: Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", environment.python, "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--force-reinstall", *map(str, wheels)], check=True, capture_output=True)


def make(folder: Path, wheels: tuple[Path, ...], engine: str, release: str) -> Environment:
    environment = Environment(bare(folder).folder, engine)
    install(environment, *wheels)
    add_engine(environment, engine, release)
    return environment


def replaceable(environment: Environment, path: str) -> Path:
    """A file of the engine that a test may write to, by its path in site-packages: folders there are links to the cache of
    releases, from which other tests read."""
    from attnfix.prove import edited_release

    for folder in reversed(Path(path).parents[:-1]):
        edited_release.own(environment.site / folder)
    found = environment.site / path
    text = found.read_text()
    found.unlink()
    found.write_text(text)
    return found


def add_engine(environment: Environment, engine: str, release: str) -> None:
    """Lay the published release out in site-packages: its package and its dist-info."""
    from attnfix.compat.releases import fetch

    for entry in fetch.fetch(engine, release).iterdir():
        if entry.is_dir():
            (environment.site / entry.name).symlink_to(entry)
