"""`attnfix` without arguments: what it says on each kind of machine, in a few lines."""

from __future__ import annotations

import subprocess
import sys

import pytest

from attnfix import cli
from attnfix.cli import overview, status
from attnfix.patches.catalogue import FIXES
from tests.unit.status.test_status import found, process, row

VLLM = [{"engine": "vllm", "release": "0.25.1", "location": "/opt/vllm"}]
BOTH = [*VLLM, {"engine": "sglang", "release": None, "location": "/opt/sglang"}]


def expected(affected=3, off=1):
    """The installed engine's fixes, as `status.collect` has them: the first need no more than that the engine starts."""
    rows = [{"fix": fix.id, "state": "fixed upstream", "verdict": "fixed upstream"} for fix in FIXES if fix.engine == "vllm"]
    for place, each in enumerate(rows[:affected]):
        each |= {"state": "off" if place < off else "dormant", "verdict": "affected"}
    return rows


@pytest.fixture
def said(monkeypatch, capsys):
    def say(told):
        monkeypatch.setattr(status, "collect", lambda: told)
        assert cli.main([]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 6 and lines[-1] == "all commands: attnfix --help"
        return lines

    return say


@pytest.mark.parametrize(
    "told, finds, types",
    [
        (found(engines=[]), "no sglang or vLLM in /opt/venv/bin/python: no server is patched from here", "pip install attnfix"),
        (found(engines=VLLM, fixes=expected()), "vllm 0.25.1: 3 of 21 fixes are for its code, 1 of them off", "attnfix doctor"),
        (found(engines=VLLM, fixes=expected(3, 0)), "no server is running here", "vllm serve"),
        (found(engines=BOTH, fixes=expected()), "1 of them off; sglang (no version): 0 of 0", "vllm serve"),
        (found(active=False, reason="attnfix.pth is not in a site folder"), "NOT ACTIVE", "attnfix run -- sglang serve"),
        (found(active=False, reason="ATTNFIX=0"), "NOT ACTIVE", "unset ATTNFIX"),
        (found(process(1, {"sglang.zero-kv-rows": "failed"})), "sglang.zero-kv-rows is missing", "attnfix report"),
        (
            found(process(1, {"sglang.zero-kv-rows": row("sglang.zero-kv-rows", "effective", calls=4)}), process(2)),
            "running processes: 2; fixes installed: 1, that corrected a call: 1",
            "attnfix status --watch",
        ),
    ],
)
def test_what_was_found_and_what_to_type_next(said, told, finds, types):
    finds = finds.replace("of 21", f"of {len(expected())}")
    lines = said(told)
    (next_line,) = (place for place, line in enumerate(lines) if line.startswith("next: "))
    assert any(finds in line for line in lines[:next_line]), lines
    assert any(types in line for line in lines[next_line:]), lines


def test_every_step_is_a_command_that_parses():
    for told in (found(engines=[]), found(), found(process()), found(process(1, {"sglang.zero-kv-rows": "late"}))):
        steps = overview.next_steps(told)
        assert steps
        for command, _ in steps:
            program, *words = command.split()
            if program == "attnfix" and "run" not in words:
                assert cli.parse(words)


def test_it_is_what_the_program_says_by_itself():
    done = subprocess.run([sys.executable, "-m", "attnfix"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("attnfix ") and done.stderr == ""
