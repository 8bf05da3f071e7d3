"""Triton's interpreter, made faster without another result. Each fork would pay again for what it keeps in a process.

- It rewrites the source of a kernel at its first launch. What a fork has rewritten, its parent rewrites for the forks to come.
- At every launch it looks through all of `triton.language` for what to replace, though the names are the same each time; and
  again at every call of a device function, though the launch has replaced it all.
- It makes a type, its shape and its name anew for each value, and a table of all types wherever it asks for numpy's.
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
    with suppress(AttributeError):
        _make_once(interpreter)


def _look_once(interpreter: Any) -> None:
    is_builtin, patch = interpreter.tl.core.is_builtin, interpreter._patch_attr

    @cache
    def members(package: Any) -> list[tuple[str, Any, Any]]:
        found = [(name, member) for name, member in inspect.getmembers(package) if is_builtin(member)]
        return [(name, member, _interpreted(interpreter, member)) for name, member in found]

    def patch_builtin(package: Any, builder: Any, *scope: Any) -> None:
        for name, member, other in members(package):
            if (now := getattr(package, name)) is member and scope:
                scope[0].set_attr(package, name, other)
            elif is_builtin(now):  # else it is replaced already
                patch(package, name, now, builder, *scope)

    core = interpreter.tl
    for package in (core, core.core, core.tensor, core.math, core.core.tensor_descriptor_base):
        members(package)  # now, while nothing is replaced
    interpreter._patch_builtin = patch_builtin


def _interpreted(interpreter: Any, member: Any) -> Any:
    """What a launch puts in the place of a builtin. The wrapper of each builtin only asks whether `_semantic` is there."""
    semantic, plain = interpreter.interpreter_semantic, interpreter.tl.core.builtin(lambda: None).__code__
    function = member.__wrapped__ if member.__code__ is plain else member

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return function(*args, **kwargs)

    return call


def _make_once(interpreter: Any) -> None:
    """What follows from types alone is kept with them; types of one element and shape share it."""
    core, semantic = interpreter.tl.core, type(interpreter.interpreter_semantic)
    numpys: dict[str, Any] = {}
    former_numpys = interpreter._get_np_dtype
    former_equal, former_block, former_value = core.dtype.__eq__, core.block_type.__init__, core.tensor.__init__
    former_broadcast = semantic.broadcast_impl_value
    blocks: dict[Any, dict[str, Any]] = {}

    def numpy_dtype(type: Any) -> Any:
        one = type.element_ty if isinstance(type, core.block_type) else type
        if (found := numpys.get(one.name)) is None:
            found = numpys[one.name] = former_numpys(one)
        return found

    def equal(self: Any, other: Any) -> Any:
        return True if self is other else former_equal(self, other)

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        # What is kept holds its element, whose id stays its own
        key = id(element_ty), *(one.value if type(one) is core.constexpr else one for one in shape)
        if (made := blocks.get(key)) is None:
            former_block(self, element_ty, shape)
            blocks[key] = vars(self).copy()
        else:
            vars(self).update(made)

    def value(self: Any, handle: Any, type: Any) -> None:
        if (made := vars(type).get("_of_a_value")) is None:
            former_value(self, handle, type)
            type._of_a_value = {name: thing for name, thing in vars(self).items() if name != "handle"}
        else:
            self.handle = handle
            vars(self).update(made)

    def broadcast(self: Any, one: Any, other: Any) -> Any:
        same = one.type.is_block() and other.type.is_block() and one.type.shape.values == other.type.shape.values
        return (one, other) if same else former_broadcast(self, one, other)

    interpreter._get_np_dtype = numpy_dtype
    core.dtype.__eq__, core.block_type.__init__, core.tensor.__init__ = equal, block, value
    semantic.broadcast_impl_value = broadcast


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
