"""A stray file in the folder where a program is started is not run because attnfix is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = (
    "import sys; from attnfix.compat import own_imports; "
    "print(own_imports.packaging_version().__file__, len(sys.meta_path))"
)
LEDGER = (
    "from attnfix.compat import ledger; from attnfix.patches.catalogue import FIXES; "
    "found = ledger.load(FIXES[0]); list(found.releases()), found.verdict('0.5.9'), found.may_be_affected('0.5.9'); "
)


def started_in(folder, code=CODE):
    """`python -c`, with the working folder first on the path, as `-m` has it, too."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ATTNFIX"))}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=variables, capture_output=True, text=True)


@pytest.mark.parametrize("asked", [CODE, "import attnfix.plugin as p; p.activation(); " + CODE, LEDGER + CODE])
def test_what_lies_in_the_working_folder_is_not_taken(tmp_path, asked):
    (tmp_path / "packaging.py").write_text("raise SystemExit('the stray file ran')")
    done = started_in(tmp_path, asked)
    assert done.returncode == 0 and str(tmp_path) not in done.stdout, done.stderr
    assert done.stdout.split()[1] == started_in(ROOT).stdout.split()[1], "the finder is gone again"


def test_nor_when_that_folder_is_gone(tmp_path):
    code = "import asyncio, os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n" + CODE
    assert started_in(tmp_path, code).returncode == 0


def test_where_it_lies_nowhere_else_it_is_taken_from_there(tmp_path):
    (tmp_path / "packaging").mkdir()
    (tmp_path / "packaging" / "version.py").write_text("mine = True")
    hide = "import sys; sys.path[1:] = [entry for entry in sys.path[1:] if 'site-packages' not in entry]\n"
    hide += f"sys.path.append({str(tmp_path)!r})\n"
    done = started_in(tmp_path, hide + CODE)
    assert str(tmp_path) in done.stdout, done.stderr


def test_the_command_line_takes_what_is_installed_first(tmp_path):
    (tmp_path / "rich.py").write_text("raise SystemExit('the stray file ran')")
    done = subprocess.run([sys.executable, "-m", "attnfix", "list"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "sglang.zero-kv-rows" in done.stdout, done.stderr
