"""Archives as nobody should publish them. name -> (unpack it into a folder, outcomes that are right)."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from attnfix.compat.releases import unpack

REFUSED, LEFT_OUT = ("refused",), ("unpacked", "refused")
#: Files outside the folder, by any way of writing it
LEAVING = ("../odd.py", "sglang/../../odd.py", "/tmp/attnfix-odd.py", "sglang/..\\..\\odd.py", "sglang/./../../../odd.py", "")


def _zip(members: dict[str, bytes], into: Path, recorded: bool = True) -> None:
    files = {"sglang/__init__.py": b"", "sglang-1.0.dist-info/METADATA": b"Name: sglang\nVersion: 1.0\n", **members}
    rows = [f"{name},sha256={_hash(data if recorded else b'other')},{len(data)}\n" for name, data in files.items()]
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            wheel.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        wheel.writestr("sglang-1.0.dist-info/RECORD", "".join(rows))
    with zipfile.ZipFile(held) as wheel:
        unpack.unpack_wheel(wheel, "sglang", "1.0", into)


def _zip_that_lies(into: Path) -> None:
    """A member whose table says 10 bytes, and that holds 64 MiB."""
    held = io.BytesIO()
    data = bytes(64 << 20)
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("sglang/__init__.py", "")
        wheel.writestr("sglang/bomb.py", data)
        wheel.writestr("sglang-1.0.dist-info/METADATA", "Name: sglang\n")
        wheel.writestr("sglang-1.0.dist-info/RECORD", f"sglang/bomb.py,sha256={_hash(data)},10\n")
    with zipfile.ZipFile(held) as wheel:
        wheel.getinfo("sglang/bomb.py").file_size = 10
        unpack.unpack_wheel(wheel, "sglang", "1.0", into)


def _many(into: Path) -> None:
    """Files that are small each, and more than a disk holds in all. The limit is lowered: the disk here is others', too."""
    limit, unpack.MAX_PACKAGE = unpack.MAX_PACKAGE, 8 << 20
    try:
        _zip({f"sglang/{number}.py": bytes(1 << 20) for number in range(16)}, into)
    finally:
        unpack.MAX_PACKAGE = limit


def _tar(into: Path, *odd: tarfile.TarInfo) -> None:
    path = into.parent / "sdist.archive"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"sglang-1.0/PKG-INFO": b"Name: sglang\n", "sglang-1.0/sglang/__init__.py": b""}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in odd:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    unpack.unpack_sdist(path, "sglang", "1.0", into)


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


_LINKS = {
    "a symbolic link": (tarfile.SYMTYPE, "../../../../etc/passwd"), "a hard link": (tarfile.LNKTYPE, "../../etc/passwd"),
    "a device": (tarfile.CHRTYPE, ""), "a pipe": (tarfile.FIFOTYPE, ""),
}  # fmt: skip
_PACKAGE = "sglang-1.0/sglang"
_INSIDE = f"{_PACKAGE}/odd.py"

ARCHIVES: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    **{f"wheel with {name!r}": (lambda into, name=name: _zip({name: b"x"}, into), REFUSED) for name in LEAVING},
    **{f"sdist with {name!r}": (lambda into, name=name: _tar(into, _member(name, size=1)), REFUSED) for name in LEAVING[:5]},
    **{
        f"sdist with {what}": (lambda into, kind=kind, link=link: _tar(into, _member(_INSIDE, kind, link)), LEFT_OUT)
        for what, (kind, link) in _LINKS.items()
    },
    "sdist whose package is a link out of it": (
        lambda into: _tar(into, _member(f"{_PACKAGE}/sub", tarfile.SYMTYPE, "../../.."), _member(f"{_PACKAGE}/sub/x.py")),
        LEFT_OUT,
    ),
    "wheel whose member holds more than its table says": (_zip_that_lies, REFUSED),
    "wheel of many files": (_many, REFUSED),
    "wheel whose RECORD is of other files": (lambda into: _zip({"sglang/x.py": b"x"}, into, recorded=False), REFUSED),
    "wheel with a file that is not in its RECORD": (lambda into: _unlisted(into), REFUSED),
    "a file of 3 MiB": (lambda into: _tar(into, _member(_INSIDE, size=3 << 20)), LEFT_OUT),
}  # fmt: skip


def _unlisted(into: Path) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as wheel:
        wheel.writestr("sglang/__init__.py", "")
        wheel.writestr("sglang-1.0.dist-info/METADATA", "Name: sglang\n")
        wheel.writestr("sglang-1.0.dist-info/RECORD", "")
    with zipfile.ZipFile(held) as wheel:
        unpack.unpack_wheel(wheel, "sglang", "1.0", into)
