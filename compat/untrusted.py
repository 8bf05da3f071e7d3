"""What somebody else may have placed: files that are looked at before a byte is read, and text that is never printed raw.

A FIFO that is opened, and a link to /dev/zero that is read, hold a process up for ever. A file of another user says what that
user likes.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_DEPTH = 50  # no JSON of ours or of a model is nested deeper, and whoever walks through it has the stack for it


def trusted(*others: int) -> frozenset[int]:
    """The users whose files are believed here: this one, root, and `others`."""
    return frozenset((os.getuid(), 0, *others))


@contextmanager
def opened(
    path: str | Path, limit: int = sys.maxsize, *, owners: Collection[int] | None = None, follow: bool = False
) -> Iterator[int]:
    """A descriptor to read a regular file of at most `limit` bytes. Raises OSError for anything else, without waiting for it.

    `owners`: the users whose files are taken, None for anyone's. `follow`: whether `path` may be a link, as a user's may.
    """
    _check(os.stat(path, follow_symlinks=follow), limit, owners)  # before: to open a device may do something to it
    link = 0 if follow else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | link)
    try:
        _check(os.fstat(descriptor), limit, owners)  # after: it may have been replaced
        yield descriptor
    finally:
        os.close(descriptor)


def read(path: str | Path, limit: int, *, owners: Collection[int] | None = None, follow: bool = False) -> bytes:
    """All of a file that `opened` opens."""
    with opened(path, limit, owners=owners, follow=follow) as descriptor:
        return content(descriptor, limit)


def content(descriptor: int, limit: int) -> bytes:
    """All that is in an open file, from its beginning. Raises OSError where it has grown beyond `limit` bytes."""
    parts, size = [], 0
    step = min(limit, os.fstat(descriptor).st_size) + 1  # not the limit: that much room would be made for every file
    while part := os.pread(descriptor, step, size):
        parts.append(part)
        if (size := size + len(part)) > limit:
            raise OSError(f"it is larger than {limit} bytes")
    return b"".join(parts)


def _check(found: os.stat_result, limit: int, owners: Collection[int] | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is no regular file")
    if owners is not None and found.st_uid not in owners:
        raise PermissionError("it belongs to another user")
    if found.st_size > limit:
        raise OSError(f"it is larger than {limit} bytes")


def parsed(data: bytes | str) -> Any:
    """The JSON in `data`. Raises ValueError for what is none, or is nested deeper than anything that is meant."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    level = [found]
    for _ in range(_DEPTH):
        if not level:
            return found
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [each for values in inner for each in values]
    raise ValueError("it is nested too deep")


def line(text: str) -> str:
    """`text` as one line that says no more to a terminal, a log or a page than its letters: everything else is escaped."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
