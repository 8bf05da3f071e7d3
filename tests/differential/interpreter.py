"""Triton's interpreter, made faster without another result. Each fork would pay again for what it keeps in a process.

- It rewrites the source of a kernel at its first launch. What a fork has rewritten, its parent rewrites for the forks to come.
- At every launch it looks through all of `triton.language` for what to replace, though the names are the same each time; and
  again at every call of a device function, though the launch has replaced it all.
- It computes each sum and product of integers once more, in 64 bits, to assert that none overflows: a check that a kernel which
  is compiled for a server does not have.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

#: module and name of a kernel
Kernel = tuple[str, str]


def speed_up() -> None:
    """Once, before the forks. Does nothing to a Triton whose interpreter is built otherwise."""
    from triton.runtime import interpreter

    with suppress(AttributeError):
        object.__setattr__(interpreter.interpreter_builder.options, "sanitize_overflow", False)
    with suppress(AttributeError):
        _look_once(interpreter)
        _replace_once(interpreter)


def _look_once(interpreter: Any) -> None:
    is_builtin, patch = interpreter.tl.core.is_builtin, interpreter._patch_attr

    @cache
    def names(package: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(package) if is_builtin(member)]

    def patch_builtin(package: Any, builder: Any, *scope: Any) -> None:
        for name in names(package):
            if is_builtin(member := getattr(package, name)):  # else it is replaced already
                patch(package, name, member, builder, *scope)

    core = interpreter.tl
    for package in (core, core.core, core.tensor, core.math, core.core.tensor_descriptor_base):
        names(package)  # now, while nothing is replaced
    interpreter._patch_builtin = patch_builtin


def _replace_once(interpreter: Any) -> None:
    former, core = interpreter._patch_lang, interpreter.tl
    replaced: list[frozenset[int]] = []  # by the launch that is under way, and by no device function

    @cache
    def seen(function: Any) -> frozenset[int]:
        return frozenset(id(value) for value in function.__globals__.values() if value is core or value is core.core)

    def patch_lang(function: Any) -> Any:
        if replaced:
            return interpreter._LangPatchScope() if seen(function) <= replaced[-1] else former(function)
        scope = former(function)
        restore = scope.restore
        replaced.append(seen(function))

        def over() -> None:
            replaced.clear()
            restore()

        scope.restore = over
        return scope

    interpreter._patch_lang = patch_lang


def rewritten() -> set[Kernel]:
    """The kernels that this process has rewritten."""
    from triton.runtime.interpreter import InterpretedFunction

    return {(function.__module__, function.__qualname__) for function in InterpretedFunction.rewritten_fn}


def rewrite(kernels: Iterable[Kernel]) -> None:
    """Those of them that are found by their name."""
    from triton.runtime.interpreter import InterpretedFunction

    for module, name in kernels:
        with suppress(ImportError, AttributeError):
            found = getattr(importlib.import_module(module), name)
            while not isinstance(found, InterpretedFunction):  # behind what tunes it
                found = found.fn
            found.rewrite()
