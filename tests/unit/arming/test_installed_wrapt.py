"""A stray wrapt in the folder where a program is started is not run because attnfix is installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = "import sys; from attnfix.compat.arming.wrapper import wrapt; print(wrapt.__file__, len(sys.meta_path))"


def started_in(folder, code=CODE):
    """`python -c`, with the working folder first on the path, as `-m` has it, too."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ATTNFIX"))}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=variables, capture_output=True, text=True)


@pytest.mark.parametrize("asked", [CODE, "import attnfix.bootstrap.process as p; p.activation(); " + CODE])
def test_what_lies_in_the_working_folder_is_not_taken(tmp_path, asked):
    (tmp_path / "wrapt.py").write_text("raise SystemExit('the stray file ran')")
    done = started_in(tmp_path, asked)
    assert done.returncode == 0 and str(tmp_path) not in done.stdout, done.stderr
    assert done.stdout.split()[1] == started_in(os.sep).stdout.split()[1], "the finder is gone again"


def test_nor_when_that_folder_is_gone():
    code = "import asyncio, os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())\n" + CODE
    assert started_in(os.sep, code).returncode == 0


def test_where_it_lies_nowhere_else_it_is_taken_from_there(tmp_path):
    (tmp_path / "wrapt.py").write_text("raise SystemExit('taken')")
    hide = "import sys; sys.path[:] = [each for each in sys.path if 'site-packages' not in each and each]\n"
    hide += f"sys.path.append({str(tmp_path)!r})\n"
    code = (
        "import attnfix.compat.arming.installed_wrapt as found\n"
        + hide
        + f"import os; os.chdir({str(tmp_path)!r}); found.wrapt()"
    )
    done = started_in(os.sep, code)
    assert done.returncode == 1 and "taken" in done.stderr, done.stderr
