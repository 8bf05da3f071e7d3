"""In-tree PEP 517 backend: setuptools, plus the compiled kernels and the `.pth` file at the top of site-packages.

setuptools alone puts a `.pth` elsewhere or drops it, and an editable install never sees it; so every wheel it makes, editable
or not, is opened again and the file added. A build that cannot compile the kernels fails: no wheel without them. Two
builds of one tree are equal to the byte: no file carries the time at which it was built.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
PTH = ROOT / "attnfix" / "bootstrap" / "attnfix.pth"

os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # 1980, where a zip's time begins; setuptools and wheel read it

get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _compile_kernels()
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would pack what a former build left there
    return _with_pth(wheel_directory, build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _compile_kernels()
    return _with_pth(wheel_directory, build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def _compile_kernels() -> None:
    spec = importlib.util.spec_from_file_location("attnfix_kernel_build", ROOT / "kernels" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.compile_all(ROOT / "kernels" / "compiled")


def _with_pth(directory: str, name: str) -> str:
    """Add the `.pth` at the root of a wheel and write its RECORD anew."""
    from wheel.wheelfile import WheelFile

    wheel = Path(directory) / name
    with tempfile.TemporaryDirectory() as unpacked:
        with WheelFile(wheel) as old:
            old.extractall(unpacked)
        shutil.copy(PTH, unpacked)
        wheel.unlink()
        with WheelFile(wheel, "w") as new:
            new.write_files(unpacked)
    return name


__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
