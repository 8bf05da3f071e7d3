"""Triton's interpreter, made faster without another result. Each fork would pay again for what it keeps in a process.

- It rewrites the source of a kernel at its first launch. What a fork has rewritten, its parent rewrites for the forks to come.
- At every launch it looks through all of `triton.language` for what to replace, and puts it back behind it; and looks again at
  every call of a device function. Nothing but interpreted kernels uses that here, so it is replaced once.
- A sum, a product or a comparison asks in many steps what the types of both sides make together, and spreads a scalar over a
  block. Most have one type, or a type and a number of Python's: numpy spreads those (`_operators`).
- It makes a type, its shape and its name anew for each value, and a table of all types wherever it asks for numpy's.
- It computes each sum and product of integers once more, in 64 bits, to assert that none overflows: a check that a kernel which
  is compiled for a server does not have.
"""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

#: module and name of a kernel
Kernel = tuple[str, str]

_NUMPYS = {"int32": np.dtype(np.int32), "int64": np.dtype(np.int64), "fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
_ARITHMETIC = {"__add__": np.add, "__sub__": np.subtract, "__mul__": np.multiply}
_COMPARISONS = {
    "__lt__": np.less, "__le__": np.less_equal, "__gt__": np.greater, "__ge__": np.greater_equal, "__eq__": np.equal,
    "__ne__": np.not_equal,
}  # fmt: skip


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
    is_builtin, patch, operators = interpreter.tl.core.is_builtin, interpreter._patch_attr, _operators(interpreter)

    @cache
    def members(package: Any) -> list[tuple[str, Any, Any]]:
        found = [(name, member) for name, member in inspect.getmembers(package) if is_builtin(member)]
        faster = operators if package is interpreter.tl.tensor else {}
        made = [(name, member, _interpreted(interpreter, member)) for name, member in found]
        return [(name, member, faster[name](call) if name in faster else call) for name, member, call in made]

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


def _operators(interpreter: Any) -> dict[str, Callable[[Any], Any]]:
    """name -> from what Triton does for such an operator of a tensor, what does the same for sides of one type, for a tensor
    and a number of Python's, and for a pointer and an offset; all else is left to the former."""
    core, builder, handle_of = interpreter.tl.core, interpreter.interpreter_builder, interpreter.TensorHandle
    tensor, constexpr, semantic = core.tensor, core.constexpr, interpreter.interpreter_semantic

    @cache
    def constant(name: str, value: Any) -> Any:
        """A handle, which nobody writes to."""
        return semantic.scalar_constant(value, getattr(core, {"fp32": "float32"}.get(name, name))).handle

    def other_side(name: str, other: Any) -> Any:
        """The handle of a number, or of a tensor whose element has that name; None for others."""
        kind = type(other)
        if kind is tensor:
            return other.handle if other.dtype.name == name and other.handle.data.dtype is _NUMPYS[name] else None
        if kind is int:  # a number takes part as a tensor's type where that is of as high a kind
            return constant(name, other) if -0x80000000 <= other < 0x80000000 and name != "fp16" else None
        return constant(name, other) if kind is float and name == "fp32" and 1e-30 < abs(other) < 1e30 else None

    def shape_of(one: Any, other: Any) -> Any:
        """That of the side that is a block, of two blocks only if they are alike; None otherwise."""
        mine, others = one.type, other.type if type(other) is tensor else None
        if others is None or mine is others or not others.is_block():
            return mine
        if not mine.is_block():
            return others
        return mine if mine.shape.values == others.shape.values else None

    def alike(one: Any, other: Any) -> tuple[Any, Any] | None:
        """The other side's handle and the shape of the result, where both sides are of one type that numpy computes with."""
        name = one.dtype.name
        if one.handle.data.dtype is not _NUMPYS.get(name) or (theirs := other_side(name, other)) is None:
            return None
        return None if (shape := shape_of(one, other)) is None else (theirs, shape)

    def of(type: Any, element: Any) -> Any:
        """`type` with elements of another type."""
        if not type.is_block():
            return element
        made = vars(type).setdefault("_of_elements", {})
        if (found := made.get(element.name)) is None:
            found = made[element.name] = type.with_element_ty(element)
        return found

    def arithmetic(operator: Any, turned: bool) -> Callable[[Any], Any]:
        def faster(former: Any) -> Any:
            def operate(self: Any, other: Any, **more: Any) -> Any:
                other = other.value if type(other) is constexpr else other
                mine = self.handle
                if (pair := alike(self, other)) is not None:
                    theirs, shape = pair
                    data = operator(theirs.data, mine.data) if turned else operator(mine.data, theirs.data)
                    return tensor(handle_of(data, mine.dtype.scalar), shape)
                moves = operator is np.add and not turned and self.dtype.is_ptr()
                moved = offset(self, other) if moves else None
                return former(self, other, **more) if moved is None else moved

            return operate

        return faster

    def offset(pointer: Any, other: Any) -> Any:
        if type(other) is not tensor or other.dtype.name not in ("int32", "int64") or not (shape := shape_of(pointer, other)):
            return None
        handle = pointer.handle
        size = max(1, handle.get_element_ty().primitive_bitwidth // 8)
        data = handle.data + size * other.handle.data.astype(np.uint64)
        return tensor(handle_of(data, handle.dtype), of(shape, pointer.dtype))

    def comparison(operator: Any) -> Callable[[Any], Any]:
        def faster(former: Any) -> Any:
            def compare(self: Any, other: Any, **more: Any) -> Any:
                other = other.value if type(other) is constexpr else other
                mine = self.handle
                if (pair := alike(self, other)) is not None:
                    theirs, shape = pair
                    return tensor(builder.binary_op(mine, theirs, operator), of(shape, core.int1))
                return former(self, other, **more)

            return compare

        return faster

    made = {name: arithmetic(operator, False) for name, operator in _ARITHMETIC.items()}
    made |= {name.replace("__", "__r", 1): arithmetic(operator, True) for name, operator in _ARITHMETIC.items()}
    return made | {name: comparison(operator) for name, operator in _COMPARISONS.items()}


def _replace_once(interpreter: Any) -> None:
    former, core = interpreter._patch_lang, interpreter.tl
    seen = types.FunctionType((lambda: None).__code__, {"tl": core, "core": core.core})  # all that a kernel may look at

    @cache
    def replace() -> None:
        former(seen)

    def patch_lang(function: Any) -> Any:
        replace()
        return interpreter._LangPatchScope()  # with nothing to put back

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
