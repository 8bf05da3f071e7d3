"""In-tree PEP 517 backend: setuptools, plus the compiled kernels, the `.pth` file at the top of site-packages, and an SBOM.

setuptools alone puts a `.pth` elsewhere or drops it, and an editable install never sees it; so every wheel it makes, editable
or not, is opened again and both files added. The lab leaves a wheel, and stays in an editable install (wheels.py). A build
that cannot compile the kernels fails: no wheel without them. Two builds of one tree are equal to the byte: no file carries the
time at which it was built.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import tarfile
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)
from wheels import ROOT, reopened, serves

PTH = ROOT / "attnfix" / "bootstrap" / "attnfix.pth"

# No prepare_metadata_for_build_editable: setup.py must see which kind of build the metadata are for
get_requires_for_build_editable = build_meta.get_requires_for_build_editable


def build_sdist(sdist_directory, config_settings=None):
    """setuptools', with one time, one owner and one order in place of this machine's."""
    name = build_meta.build_sdist(sdist_directory, config_settings)
    path, moment = Path(sdist_directory, name), int(os.environ["SOURCE_DATE_EPOCH"])
    with (
        tarfile.open(path) as archive,
        open(f"{path}.new", "wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(filter(tarfile.TarInfo.isfile, archive.getmembers()), key=lambda member: member.name):
            new.addfile(_plain(member, moment), archive.extractfile(member))
    os.replace(f"{path}.new", path)
    return name


def _plain(member: tarfile.TarInfo, moment: int) -> tarfile.TarInfo:
    plain = tarfile.TarInfo(member.name)
    plain.size, plain.mtime, plain.mode = member.size, moment, 0o755 if member.mode & 0o100 else 0o644
    return plain


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _compile_kernels()
    for pattern in ("lib*", "bdist.*", "temp.*"):  # setuptools would pack what a former build left there; the rest is others'
        for left in (ROOT / "build").glob(pattern):
            shutil.rmtree(left, ignore_errors=True)
    name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _completed(wheel_directory, name, whole=False)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _compile_kernels()
    name = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return _completed(wheel_directory, name, whole=True)


def _compile_kernels() -> None:
    spec = importlib.util.spec_from_file_location("attnfix_kernel_build", ROOT / "kernels" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.compile_all(ROOT / "kernels" / "compiled")


def _completed(directory: str, name: str, whole: bool) -> str:
    """Add the `.pth` at the root of a wheel and its bill of materials (PEP 770); take out the lab, unless `whole`."""
    import sbom

    with reopened(Path(directory, name)) as (unpacked, about):
        for path in [] if whole else [path for path in unpacked.rglob("*") if path.is_file()]:
            if not serves(path.relative_to(unpacked).as_posix()):
                path.unlink()
        shutil.copy(PTH, unpacked)
        (about / "sboms").mkdir()
        (about / "sboms" / "attnfix.cdx.json").write_text(sbom.text(name, ROOT / "kernels" / "compiled"))
    return name


__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]
