"""Sources written otherwise, judged by every Python that is here."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

from tests.support.interpreters import PRESENT, VERSIONS

from . import Row, faulty
from .gate_verdicts import Sources
from .reformatted import REFORMATTED

_ROOT = Path(__file__).resolve().parents[2]
_JUDGE = """
import json, sys
from pathlib import Path
from attnfix.compat.gate import judge
from attnfix.patches.catalogue import BY_ID
for line in sys.stdin:
    name, root = json.loads(line)
    verdict = judge.judge(BY_ID[name], Path(root))
    print(json.dumps([verdict.affected, verdict.reason]), flush=True)
"""


def run(quick: bool, seed: int, say: Callable[[str], None]) -> Row:
    """Each code that attnfix patches, written otherwise, all ways in turn. Wrong: any that is not recognised."""
    draw = random.Random(seed)
    codes = faulty.every(draw)
    chosen = draw.sample(codes, 10) if quick else codes * 2
    ways = cycle(draw.sample(list(REFORMATTED), len(REFORMATTED)))
    row = Row("sources written otherwise: recognised", 0)
    with tempfile.TemporaryDirectory(prefix="attnfix-reformatted-") as home, ThreadPoolExecutor(2) as two:
        package = _package(Path(home))
        jobs = [
            (code, way, _laid_out(code, way, Path(home, str(number)))) for number, (code, way) in enumerate(zip(chosen, ways))
        ]
        for version, answers in zip(PRESENT, two.map(lambda python: _judged(python, package, jobs), PRESENT.values())):
            say(f"Python {version}: {len(answers)} judged")
            row.tried += len(answers)
            row.wrong += [
                f"{code}, {way}, Python {version}: {reason} (seed {seed})"
                for (code, way, _), (affected, reason) in zip(jobs, answers) if not affected
            ]  # fmt: skip
    row.figures = {"ways": ", ".join(REFORMATTED), "Pythons": ", ".join(PRESENT)}
    row.not_run = [f"no Python {version} here" for version in VERSIONS if version not in PRESENT]
    return row


def _package(home: Path) -> Path:
    """A folder from which any Python imports this tree's attnfix, and nothing else."""
    package = home / "path" / "attnfix"
    package.mkdir(parents=True)
    for entry in (*(_ROOT / "attnfix").iterdir(), *(_ROOT / name for name in ("compat", "patches", "kernels"))):
        (package / entry.name).symlink_to(entry)
    return package.parent


def _laid_out(code: faulty.Code, way: str, home: Path) -> str:
    plain = Sources(code.fix, code.release, home / "plain", code.files())
    written = {module: REFORMATTED[way](source.decode()) for module, source in plain.files.items()}
    return str(Sources(code.fix, code.release, home / "otherwise", written).root)


def _judged(python: str, package: Path, jobs: list[tuple[faulty.Code, str, str]]) -> list[tuple[bool, str]]:
    asked = "".join(json.dumps([code.fix.id, root]) + "\n" for code, _, root in jobs)
    command = [python, "-B", "-S", "-c", f"import sys; sys.path.insert(0, {str(package)!r})\n{_JUDGE}"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{python}: {done.stderr[-1000:]}")
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]
