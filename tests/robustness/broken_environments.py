"""Where attnfix runs with something missing or broken around it: its ledger, the disk, a home folder, the engine's own files.

Each case is a fresh process over a fresh copy of the small engine: `script` runs in it and prints what it sees of itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
USE = """
import json, os, sys
sys.path.insert(0, {here!r})
from pathlib import Path
import small_engine
folder = Path({folder!r})
small_engine.put_in_place(folder)
{before}
small_engine.load()
{after}
print("ANSWER" + json.dumps(small_engine.report()))
"""
NOBODY = """
import attnfix.compat.arming.activation, attnfix.compat.arming.ray_workers
import attnfix.compat.status.metrics, attnfix.compat.status.process_record, tempfile
import importlib.metadata, email.parser, multiprocessing, packaging.version
import attnfix.bootstrap.entry_points, corrections_one, corrections_two
small_engine.fixes()
os.setgid(65534); os.setuid(65534)
"""


@dataclass
class Case:
    """`expected`: state of the first fix, which the case is about; the second one stands unless `second` is another state."""

    name: str
    expected: str = "effective"
    second: str = "effective"
    before: str = ""
    after: str = ""
    variables: dict[str, str | None] = field(default_factory=dict)
    around: Callable[[Path], object] | None = None
    says: str | None = None


def cases() -> Iterator[Case]:
    yield from _ledgers()
    yield Case("HOME is not set", variables={"HOME": None})
    yield Case("HOME does not exist", variables={"HOME": "/nonexistent"})
    yield Case("HOME is a file", variables={"HOME": "/dev/null"})
    record = "no process record"
    yield Case("the record's folder lies below a file", variables={"ATTNFIX_RUN_DIR": "/dev/null/run"}, says=record)
    yield Case("the record's folder is on a read-only file system", around=_mounted("ro"), says=record)
    yield Case("the record's folder is on a full disk", around=_mounted("size=16k"), says=record)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nsys.dont_write_bytecode = True\n"
    yield Case("the process may write no file", before=limit, says=record)
    yield Case("the record's folder is another user's", before=NOBODY, around=_closed, says=record)
    yield Case("standard error is closed", before="sys.stderr.close()")
    yield Case("standard error is on a full disk", before="sys.stderr = open('/dev/full', 'w')")
    step = "small_engine.replace(folder, {!r})\nimport sglang.{}\n"
    yield Case(
        "upgraded in place before the targets are imported", "unknown source",
        before="import sglang\nsmall_engine.replace(folder, 'planning')\n",
    )  # fmt: skip
    yield Case(
        "upgraded in place between two targets", "conflict",
        before="import sglang.attention\n" + step.format("planning", "planning"),
    )  # fmt: skip
    yield Case(
        "upgraded in place after a witness was imported", "unknown source",
        before="import sglang.caller\n" + step.format("caller", "attention"),
    )  # fmt: skip
    yield Case(
        "upgraded in place after arming, a witness imported later", "conflict", after=step.format("caller", "caller"),
        says="restart it",
    )  # fmt: skip
    yield Case(
        "upgraded in place after everything was imported", before="import sglang.caller",
        after="small_engine.replace(folder, 'planning')\n", says="restart it",
    )  # fmt: skip


def _ledgers() -> Iterator[Case]:
    def edited(change: Callable[[bytes], bytes | None]) -> Callable[[Path], None]:
        def around(folder: Path) -> None:
            path = folder / "index.json"
            changed = change(path.read_bytes())
            path.unlink()
            if changed is not None:
                path.write_bytes(changed)

        return around

    def newer(text: bytes) -> bytes:
        return text.replace(b'"digest_format": ', b'"digest_format": 9')

    unknown = "unknown source", "unknown source"
    yield Case("no ledger", *unknown, around=edited(lambda text: None))
    yield Case("a ledger from a newer format", *unknown, around=edited(newer))
    for twentieth in range(20):
        cut = edited(lambda text, twentieth=twentieth: text[: len(text) * twentieth // 20])  # type: ignore[misc]
        yield Case(f"a ledger cut off after {5 * twentieth} %", *unknown, around=cut)
    for content in (b"[]", b"null", b"\xff\xfe\x00", b"{\n}\n", b'{\n"index_format": 1,\n"digest_format": 2\n}\n'):
        yield Case(f"a ledger that holds {content!r}", *unknown, around=edited(lambda text, content=content: content))  # type: ignore[misc]
    alone = "unknown source", "effective"
    lines = {
        "releases": unknown,
        "targets": ("effective", "effective"),  # which the fixes declare, too
        "fix sglang.small-fix": alone,
        "file sglang.planning": alone,
        "code sglang.planning:plan": alone,
    }
    for name, states in lines.items():
        gone = edited(lambda text, name=name: _without(text, f'"{name}": '.encode()))  # type: ignore[misc]
        yield Case(f"a ledger without {name!r}", *states, around=gone)


def _without(text: bytes, line: bytes) -> bytes:
    return b"".join(each for each in text.splitlines(keepends=True) if not each.startswith(line))


def _closed(folder: Path) -> None:
    (folder / "run").mkdir(mode=0o700)


def _mounted(options: str) -> Callable[[Path], object]:
    @contextmanager
    def around(folder: Path) -> Iterator[None]:
        run = folder / "run"
        run.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(run)], capture_output=True, text=True)
        if done.returncode:
            raise NotHere(f"mount: {done.stderr.strip()}")
        try:
            yield
        finally:
            subprocess.run(["umount", str(run)], check=True)

    return around


class NotHere(Exception):
    """What a case needs is not to be had on this machine."""


def wrong(case: Case) -> str | None:
    """What came out wrong of one case, or None. Raises NotHere."""
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        folder.chmod(0o755)
        subprocess.run([sys.executable, HERE / "small_engine.py", folder], check=True, timeout=120)
        around = case.around(folder) if case.around else None
        if around is not None:
            stack.enter_context(around)  # type: ignore[arg-type]
        done = _run(case, folder)
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    if done.returncode or not answers:
        return f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    told = json.loads(answers[0].removeprefix("ANSWER"))
    states = told["states"]
    first, second = ("armed" if state == "effective" else "stock" for state in (case.expected, case.second))
    if told["half"] or told["first"] != first or told["second"] != second:
        return f"half or not as expected: {told['seen']}, {states}, {told['reasons']}"
    for fix, expected in ("sglang.small-fix", case.expected), ("sglang.second-fix", case.second):
        if states[fix] != expected:
            return f"{fix} is {states[fix]} ({told['reasons'][fix]}), not {expected}"
    said = done.stderr.count(case.says) if case.says else 1
    return None if said == 1 else f"said {case.says!r} {said} times: {done.stderr[-300:]}"


def _run(case: Case, folder: Path) -> subprocess.CompletedProcess:
    script = USE.format(here=str(HERE), folder=str(folder), before=case.before, after=case.after)
    variables: dict[str, str | None] = {"ATTNFIX_RUN_DIR": str(folder / "run"), **case.variables}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    environment = {name: value for name, value in {**clean, **variables}.items() if value is not None}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
