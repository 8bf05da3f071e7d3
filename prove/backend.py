"""In-tree PEP 517 backend of attnfix-prove: setuptools makes a wheel without modules, and the files of the lab are added.

They lie in the folders of the packages that they belong to, outside this one. So there is a wheel alone, made in a checkout or
in the unpacked source archive of attnfix, and nothing to install in editable mode: attnfix's own editable install has the lab.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import get_requires_for_build_wheel, prepare_metadata_for_build_wheel

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts" / "build"))

from wheels import ROOT, lab, reopened

#: A file in the folder `attnfix` itself: pip removes a folder with the last file that lies in it, not with the last below it
MARK = "attnfix/attnfix-prove.txt", "The wheel attnfix-prove is installed. Its RECORD lists its files.\n"


class UnsupportedOperation(Exception):
    """PEP 517's name for it."""


def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("attnfix-prove has no source archive of its own: it is in that of attnfix")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import sbom

    name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    with reopened(Path(wheel_directory, name)) as (unpacked, about):
        for path, file in lab().items():
            (unpacked / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, unpacked / path)
        (unpacked / MARK[0]).write_text(MARK[1])
        (about / "licenses").mkdir()
        shutil.copy(ROOT / "LICENSE", about / "licenses")
        metadata = about / "METADATA"
        metadata.write_text(metadata.read_text().replace("\nRequires-Python:", "\nLicense-File: LICENSE\nRequires-Python:", 1))
        (about / "sboms").mkdir()
        (about / "sboms" / "attnfix-prove.cdx.json").write_text(sbom.text(name))
    return name


__all__ = ["build_sdist", "build_wheel", "get_requires_for_build_wheel", "prepare_metadata_for_build_wheel"]
