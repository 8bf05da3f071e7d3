"""An engine's function run with some of its module's names bound to something else: exact, and the same in every thread."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def rebound(function: FunctionType, **names: Any) -> FunctionType:
    """A twin of `function` that reads `names` as given; all other globals are its own, as they are when it runs."""
    names["__builtins__"] = function.__globals__["__builtins__"]
    twin = FunctionType(
        function.__code__, _Globals(function, names), function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


class _Globals(dict):
    def __init__(self, function: FunctionType, names: dict[str, Any]):
        super().__init__(names)
        self._function = function

    def __missing__(self, name: str) -> Any:
        return self._function.__globals__[name]
