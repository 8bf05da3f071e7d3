"""attnfix without torch, on every Python that it supports, beside every wrapt that images have.

attnfix does not need wrapt: other patchers do, and what they put around an engine's function is told by its kind.

nox                         all cells
nox -t boundary             the oldest Python with the oldest wrapt, the newest with the newest
nox -- attnfix-….whl        with this wheel instead of one built from here
"""

from itertools import product
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
WRAPTS = ("==1.16.0", "==1.17.*", ">=2,<3,!=2.2.0")
ENDS = (PYTHONS[0], WRAPTS[0]), (PYTHONS[-1], WRAPTS[-1])
CELLS = [
    nox.param(*cell, id=f"python {cell[0]}, wrapt {cell[1].strip('=')}", tags=["boundary"] if cell in ENDS else [])
    for cell in product(PYTHONS, WRAPTS)
]
#: Gate, arming, records, switches and the command line: what a serving process runs before torch is there
TESTS = (
    "activation", "seats", "digest", "records", "recorder", "switches", "status", "command_words", "own_imports", "import_cost",
    "wrapping",
)  # fmt: skip


@nox.session
@nox.parametrize("python,wrapt", CELLS)
def without_torch(session: nox.Session, wrapt: str) -> None:
    wheel = session.posargs[0] if session.posargs else _built(session)
    session.install("--quiet", wheel, f"wrapt{wrapt}", "pytest")
    session.run("python", "tests/torture/doors.py")
    session.run("pytest", "-p", "no:cacheprovider", *(f"tests/unit/test_{name}.py" for name in TESTS))


def _built(session: nox.Session) -> str:
    folder = session.create_tmp()
    session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".")
    return str(next(Path(folder).glob("attnfix-*.whl")))
