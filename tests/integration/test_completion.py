"""Completion as bash does it: its own function, which argcomplete writes, asks the command line that is installed here."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from attnfix import cli
from attnfix.patches.catalogue import BY_ID, known_bugs

BASH = """
eval "$("$1" -c 'from argcomplete import shellcode; print(shellcode(["attnfix"]))')"
attnfix() { "$PYTHON" -m attnfix "$@"; }
PYTHON=$1 COMP_LINE=$2 COMP_POINT=${#2} COMP_TYPE=9
_python_argcomplete attnfix
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def offered():
    """`offered(line)`: the words that bash offers at the end of `line`."""
    pytest.importorskip("argcomplete")
    if not shutil.which("bash"):
        pytest.skip("no bash here")

    def ask(line):
        done = subprocess.run(["bash", "-c", BASH, "bash", sys.executable, line], capture_output=True, text=True)
        return {word.strip() for word in done.stdout.splitlines() if word.strip()}

    return ask


def test_commands_are_offered(offered):
    assert set(cli.COMMANDS) <= offered("attnfix ")
    assert offered("attnfix sta") == {"status"}


@pytest.mark.parametrize(
    "line, word",
    [
        ("attnfix explain sglang.zero", "sglang.zero-kv-rows"),
        ("attnfix prove --fix vllm.mla", "vllm.mla-context-order"),
        ("attnfix doctor --gpu mi325", "mi325x"),
        ("attnfix status --wat", "--watch"),
    ],
)
def test_the_one_word_that_fits_is_offered(offered, line, word):
    assert offered(line) == {word}


_KNOWN = {bug.id for bug in known_bugs("vllm")}


def test_fixes_and_releases_are_offered(offered):
    assert offered("attnfix explain vllm.") == {*(fix for fix in BY_ID if fix.startswith("vllm.")), *_KNOWN}
    assert {"0.5.9", "0.5.10.post1"} <= {word.rpartition("=")[2] for word in offered("attnfix verdict sglang==0.5.")}


def test_without_argcomplete_a_shell_gets_no_word_and_no_traceback(monkeypatch, capsys):
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert cli.main(["status"]) == 1
    assert capsys.readouterr() == ("", "")
