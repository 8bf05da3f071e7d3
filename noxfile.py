"""attnfix without torch, on every Python that it supports, beside every wrapt that images have.

wrapt carries attnfix's wrappers. Images pin versions of it, so all that attnfix allows have to do.

nox                         all cells
nox -t boundary             the oldest Python with the oldest wrapt, the newest with the newest
nox -- attnfix-….whl        with this wheel instead of one built from here
"""

from itertools import product
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
WRAPTS = ("==1.16.0", "==1.17.*", ">=2,<3,!=2.2.0")
ENDS = ("3.10", WRAPTS[0]), ("3.13", WRAPTS[-1])  # 3.14 is not on every machine yet
CELLS = [
    nox.param(*cell, id=f"python {cell[0]}, wrapt {cell[1].strip('=')}", tags=["boundary"] if cell in ENDS else [])
    for cell in product(PYTHONS, WRAPTS)
]
#: Gate, arming, records, switches and the command line: what a serving process runs before torch is there
TESTS = (
    "arming/test_activation", "arming/test_patch_points", "arming/test_wrapper", "gate/test_digest",
    "status/test_process_record", "status/test_recorder", "status/test_status", "cli/test_switches", "cli/test_command_words",
    "bootstrap/test_import_cost",
)  # fmt: skip


@nox.session
@nox.parametrize("python,wrapt", CELLS)
def without_torch(session: nox.Session, wrapt: str) -> None:
    wheel = session.posargs[0] if session.posargs else _built(session)
    session.install("--quiet", wheel, f"wrapt{wrapt}", "pytest")
    session.run("python", "tests/robustness/activation_paths.py")
    session.run("pytest", "-p", "no:cacheprovider", *(f"tests/unit/{name}.py" for name in TESTS))


def _built(session: nox.Session) -> str:
    folder = session.create_tmp()
    session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".")
    return str(next(Path(folder).glob("attnfix-*.whl")))
