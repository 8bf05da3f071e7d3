"""Arguments of an engine's function that come by position from one caller and by keyword from another."""

from __future__ import annotations

from operator import itemgetter
from typing import Any


class Positions:
    """Where the engine's signature has the arguments named; the signature is part of the digests of what is corrected."""

    def __init__(self, **at: int):
        self._at = at
        self._by_keyword = itemgetter(*at)

    def of(self, name: str, args: tuple, kwargs: dict) -> Any:
        at = self._at[name]
        return args[at] if len(args) > at else kwargs[name]

    def all(self, args: tuple, kwargs: dict) -> tuple:
        """Two arguments or more, in the order in which they were named here."""
        return tuple(self.of(name, args, kwargs) for name in self._at) if args else self._by_keyword(kwargs)

    def with_one(self, name: str, value: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Arguments of which `name` is `value`, all others as they are."""
        at = self._at[name]
        if len(args) > at:
            return (*args[:at], value, *args[at + 1 :]), kwargs
        return args, {**kwargs, name: value}
