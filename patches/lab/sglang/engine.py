"""What all builders of sglang's objects stand on: its modules, by name, and its "cuda" made "cpu"."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def module(name: str) -> Any:
    """A module of the engine by what follows `sglang.srt.`; None if this release has none of that name."""
    full = f"sglang.srt.{name}"
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name and f"{full}.".startswith(f"{error.name}."):
            return None
        raise


def accepted(function: Callable, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of `arguments` that `function` takes in this release."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def required(function: Callable) -> list[str]:
    """The arguments that `function` has no default for in this release."""
    return [name for name, one in inspect.signature(function).parameters.items() if one.default is one.empty]


@contextmanager
def on_cpu() -> Iterator[None]:
    """Make tensors on the CPU where the engine's code says "cuda"."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if str(kwargs.get("device")).startswith("cuda"):
                kwargs["device"] = "cpu"
            return function(*args, **kwargs)

    with Mode():
        yield
