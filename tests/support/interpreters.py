"""The Pythons that attnfix is for, as far as they are on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def interpreter(version: str) -> str | None:
    """A CPython of that version: one that pyenv keeps, or one on the path."""
    for candidate in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        return str(candidate)
    return shutil.which(f"python{version}")


PRESENT = {version: path for version in VERSIONS if (path := interpreter(version))}
