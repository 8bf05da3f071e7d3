"""Which files go into which of the two wheels, and how a wheel that setuptools has made is opened again.

Both lie in the package folder `attnfix`: `attnfix-prove` has the lab, which proofs alone need, and `attnfix` everything else.
No file is in both, so that either can be installed, upgraded and removed beside the other.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Package folder in a wheel -> folder here
FOLDERS = {"attnfix": "attnfix", "attnfix/compat": "compat", "attnfix/patches": "patches", "attnfix/kernels": "kernels"}
_LAB = re.compile(r"attnfix/(prove|compat/releases|patches/lab)/.+|attnfix/patches/\w+/\w+/proof\.py")
_NOWHERE = {"attnfix/kernels/build.py"}  # the source archive has it

os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # 1980, where a zip's time begins; setuptools and wheel read it


def is_lab(path: str) -> bool:
    """Whether a file of the package, by its path in a wheel, is of `attnfix-prove`."""
    return _LAB.fullmatch(path) is not None


def serves(path: str) -> bool:
    """Whether it is of `attnfix`."""
    return not is_lab(path) and path not in _NOWHERE


def lab(root: Path = ROOT) -> dict[str, Path]:
    """{path in the wheel: file} of everything in `attnfix-prove`."""
    found = {
        f"{package}/{path.relative_to(root / folder).as_posix()}": path
        for package, folder in FOLDERS.items()
        for path in (root / folder).rglob("*.py")
    }
    return {name: found[name] for name in sorted(found) if is_lab(name)}


@contextmanager
def reopened(wheel: Path) -> Iterator[tuple[Path, Path]]:
    """A folder with the wheel's files, and its dist-info there. The wheel then holds what is left in it, with a new RECORD."""
    from wheel.wheelfile import WheelFile

    with tempfile.TemporaryDirectory() as unpacked:
        with WheelFile(wheel) as old:
            old.extractall(unpacked)  # nosec B202: the wheel that setuptools has just made
        (about,) = Path(unpacked).glob("*.dist-info")
        yield Path(unpacked), about
        wheel.unlink()
        with WheelFile(wheel, "w") as new:
            new.write_files(unpacked)
