"""Forks of a warm Python: what each of them sees is what an interpreter of its own would, and nothing of its neighbours."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from attnfix.prove.warm import Warm

PLAIN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def warm():
    with Warm(sys.executable, PLAIN, ["json", "decimal"]) as started:
        yield started


@pytest.fixture
def both(warm, tmp_path):
    """`both(*arguments, **variables)`: what a fork and an interpreter of its own give, in one folder."""

    def run(*arguments, **variables):
        how = {"env": {**PLAIN, **variables}, "cwd": tmp_path, "timeout": 60}
        fresh = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **how)
        return [(done.returncode, done.stdout, done.stderr) for done in (warm.run(arguments, **how), fresh)]

    return run


LOOK = "import os, sys; print(__name__, sys.argv, sys.path, os.getcwd(), sorted(os.environ.items()), sys.stdin.read())"


def test_a_fork_is_as_an_interpreter_of_its_own(both, tmp_path):
    (tmp_path / "program.py").write_text(LOOK)
    for arguments in (["-c", LOOK, "a", "b"], ["-m", "program"]):
        fork, fresh = both(*arguments, PYTHONPATH=f"{tmp_path}/x:{tmp_path}", ATTNFIX_STRICT="1")
        if arguments[0] == "-m":  # runpy names the file
            fork, fresh = ((code, out.partition("] ")[2], err) for code, out, err in (fork, fresh))
        assert fork == fresh and fork[0] == 0


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit",
        "raise SystemExit(7)",
        "raise SystemExit('no')",
        "import os; os._exit(78)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import atexit; atexit.register(print, 'at the end'); print('first')",
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'raise SystemExit(3)']).returncode)",
    ],
)
def test_it_ends_as_one(both, code):
    fork, fresh = both("-c", code)
    assert fork == fresh


def test_an_exception_is_told_and_ends_it_with_1(both):
    (code, _, said), (_, _, fresh) = both("-c", "1 / 0")
    assert code == 1 and said.splitlines()[-1] == fresh.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_the_parents_imports_are_there_and_those_of_a_neighbour_are_not(warm, tmp_path):
    how = {"env": PLAIN, "cwd": tmp_path, "timeout": 60}
    code = "import sys; print('decimal' in sys.modules, 'colorsys' in sys.modules); import colorsys"
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda _: warm.run(["-c", code], **how).stdout, range(12)))
    assert said == ["True False\n"] * 12


def test_an_environment_that_the_parents_imports_may_have_read_is_refused(warm, tmp_path):
    with pytest.raises(ValueError, match="OMP_NUM_THREADS"):
        warm.run(["-c", ""], env={**PLAIN, "OMP_NUM_THREADS": "63"}, cwd=tmp_path, timeout=60)


def test_a_run_that_takes_too_long_is_ended(warm, tmp_path):
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(["-c", code], env=PLAIN, cwd=tmp_path, timeout=2)
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_module_that_cannot_be_imported_is_an_error_at_once():
    with pytest.raises(RuntimeError, match="no_such_module"):
        Warm(sys.executable, PLAIN, ["no_such_module"])
