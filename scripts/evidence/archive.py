"""The raw records of runs: one compressed archive, docs/evidence/raw.tar.xz, equal to the byte for equal records."""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "docs/evidence/raw.tar.xz"


def members(archive: Path = ARCHIVE) -> dict[str, bytes]:
    """{name of a record: its bytes}; empty where there is no archive."""
    return dict(_members(archive, archive.stat().st_mtime_ns)) if archive.exists() else {}


@cache
def _members(archive: Path, modified: int) -> dict[str, bytes]:
    with tarfile.open(archive, "r:xz") as opened:
        found = ((member.name, opened.extractfile(member)) for member in opened if member.isfile())
        return {name: content.read() for name, content in found if content}


def write(records: Mapping[str, bytes], archive: Path = ARCHIVE) -> None:
    """Write these records and no others. Owners, modes and times are constants; the order is that of the names."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as opened:
        for name, content in sorted(records.items()):
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o644
            opened.addfile(about, io.BytesIO(content))
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def sha256(archive: Path = ARCHIVE) -> str:
    return hashlib.sha256(archive.read_bytes()).hexdigest()
