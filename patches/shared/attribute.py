"""An object's own attribute for the duration of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """One that the object's class gives it comes back into sight."""
    own = vars(owner)
    had, former = name in own, own.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, former)
        else:
            delattr(owner, name)
