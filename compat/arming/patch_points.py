"""Where a fix sits in the engine: a wrapper on a function, an override in a class, a class attribute.

`take` swaps it in as soon as the module is there; wrappers pass through until their fix is armed, an attribute waits for it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from inspect import getattr_static
from itertools import islice
from types import FunctionType
from typing import Any

from ..fix import Attribute, CodePath, Override, Target
from ..gate import judge, loaded_code, module_lookup, source_files
from ..status.fix_state import CONFLICT, LATE, FixState
from . import stale_references
from .wrapper import WrappedTarget, live, owner_of, stands, swap

_NONE = object()
_HEAD = re.compile(rb"\s*(?:async\s+)?def\s+(\w+)")


class Refused(Exception):
    """A fix goes no further here; carries the state that it is left in."""

    def __init__(self, state: str, reason: str):
        super().__init__(reason)
        self.state = state


class WrapperPoint:
    """A wrapper on the function at `code_path`, shared with every other fix that has a correction there."""

    def __init__(self, code_path: CodePath, wrapper: WrappedTarget, state: FixState):
        self.code_path, self.wrapper, self.state = code_path, wrapper, state

    @property
    def stands(self) -> bool:
        """Whether the wrapper is still there, and around the code that was judged."""
        return stands(self.code_path, self.wrapper.function) and self.wrapper.wrapped.__code__ is self.wrapper.code

    def arm(self) -> None:
        """Nothing to do: the wrapper asks whether its fix is armed."""

    disarm = arm

    def withdraw(self) -> None:
        self.wrapper.remove(self.state)
        if not self.wrapper.in_use and stands(self.code_path, self.wrapper.function):
            swap(self.code_path, self.wrapper.wrapped)


class OverridePoint(WrapperPoint):
    """A wrapper on the heir: taken off, the inherited method is there again."""

    def withdraw(self) -> None:
        self.wrapper.remove(self.state)
        if not self.wrapper.in_use and stands(self.code_path, self.wrapper.function):
            delattr(owner_of(self.code_path), _name(self.code_path))


class AttributePoint:
    """A class attribute: ours while the fix is armed, else what the class had, or nothing."""

    def __init__(self, code_path: CodePath, value: Any):
        self.code_path, self.value = code_path, value
        self.former: Any = _NONE
        self.armed = False

    @property
    def stands(self) -> bool:
        return not self.armed or stands(self.code_path, self.value)

    def arm(self) -> None:
        if self.armed:
            return
        with suppress(KeyError):
            self.former = live(self.code_path)
        self.armed = True  # first: what is swapped in must never be left behind
        swap(self.code_path, self.value)

    def disarm(self) -> None:
        if self.armed and self.stands:
            if self.former is _NONE:
                delattr(owner_of(self.code_path), _name(self.code_path))
            else:
                swap(self.code_path, self.former)
        self.armed = False

    withdraw = disarm


PatchPoint = WrapperPoint | AttributePoint


def home(target: Target | Override | Attribute, present: frozenset[CodePath], sources: source_files.Sources) -> CodePath | None:
    """The target's code path that the judged code has; for a class member that is yet to come, its class decides."""
    for code_path in target.code_paths:
        if code_path in present or (not isinstance(target, Target) and judge.locate(code_path.owner, sources) is not None):
            return code_path
    return None


def take(
    target: Target | Override | Attribute, code_path: CodePath, state: FixState, late: bool, sources: source_files.Sources
) -> PatchPoint:
    """Swap in what `target` asks for at `code_path`. Raises Refused where something else stands there."""
    if isinstance(target, Attribute):
        owner_of(code_path)  # AttributeError: no such class
        return AttributePoint(code_path, target.value)
    if isinstance(target, Override):
        return OverridePoint(code_path, _override(target, code_path, state, late, sources), state)
    return WrapperPoint(code_path, _wrap(target, code_path, state, late, sources), state)


def _wrap(target: Target, code_path: CodePath, state: FixState, late: bool, sources: source_files.Sources) -> WrappedTarget:
    try:
        standing = live(code_path)
    except KeyError:
        raise Refused(CONFLICT, f"{code_path.owner.qualname} was replaced by {origin(owner_of(code_path))}") from None
    if known := WrappedTarget.of(standing):
        return known.add(state, target.correct, target.needed, repeatable=target.repeatable)
    _check_plain(code_path, standing, late, sources)
    wrapper = WrappedTarget(standing, code_path)
    wrapper.add(state, target.correct, target.needed, repeatable=target.repeatable)  # may raise: so before it stands
    swap(code_path, wrapper.function)
    if late and (held := stale_references.rebind(standing, wrapper)):
        swap(code_path, standing)
        raise _late(code_path, held)
    return wrapper


def _override(
    target: Override, code_path: CodePath, state: FixState, late: bool, sources: source_files.Sources
) -> WrappedTarget:
    heir = owner_of(code_path)
    standing = vars(heir).get(_name(code_path), _NONE)
    if known := WrappedTarget.of(standing):
        return known.add(state, target.correct, target.needed, repeatable=target.repeatable)
    if standing is not _NONE:
        raise Refused(CONFLICT, f"{code_path.qualname} is defined by {origin(standing)}")
    base = next(base for base in map(CodePath.parse, target.of) if judge.locate(base, sources) is not None)
    inherited = getattr_static(heir, _name(code_path))
    known = WrappedTarget.of(inherited)
    _check_plain(base, known.wrapped if known else inherited, late, sources)
    if late and (held := stale_references.bound_to(inherited, heir)):
        raise _late(code_path, held)
    wrapper = WrappedTarget(inherited, code_path)
    wrapper.add(state, target.correct, target.needed, repeatable=target.repeatable)
    swap(code_path, wrapper.function)
    return wrapper


def _late(code_path: CodePath, held: str) -> Refused:
    return Refused(LATE, f"{code_path.qualname} was already held by {held}; activate attnfix before the engine loads")


def _check_plain(code_path: CodePath, standing: Any, late: bool, sources: source_files.Sources) -> None:
    """Refuse a target that is not the plain function which stands at `code_path` in the judged file. In one that was loaded a
    while ago somebody may have put other code."""
    if type(standing) is not FunctionType:
        raise Refused(CONFLICT, f"{code_path.qualname} is already wrapped or replaced by {origin(standing)}")
    source = sources[code_path.module]
    if source is None or not _is_defined_in(source, code_path, standing):
        raise Refused(CONFLICT, f"{code_path.qualname} was replaced by {origin(standing)}")
    # A parse costs 20 ms, more than all else here together: only where the file may have been replaced since it was imported
    compare = late or loaded_code.may_differ(module_lookup.module(code_path.module), source.path, sources.root)
    if compare and not loaded_code.is_defined(standing, code_path, sources):
        raise Refused(CONFLICT, f"{code_path.qualname} is not what its file defines: {origin(standing)}")


def _is_defined_in(source: source_files.Source, code_path: CodePath, function: FunctionType) -> bool:
    """Whether `function` came from the judged file, by what its code says of itself: name, file and line, with a definition of
    that name on the line."""
    if not says_so(source, code_path, function):
        return False
    code = function.__code__
    lines = islice(source.lines, code.co_firstlineno - 1, None)
    first = next(lines, b"")
    decorated = first.lstrip().startswith(b"@")
    head = next(filter(None, map(_HEAD.match, lines)), None) if decorated else _HEAD.match(first)
    return head is not None and head[1].decode() == _name(code_path)


def says_so(source: source_files.Source, code_path: CodePath, function: FunctionType) -> bool:
    """Whether the code of a function says that it is the one at `code_path` in the judged file."""
    code = function.__code__
    called = getattr(code, "co_qualname", function.__qualname__)  # before Python 3.11 the code does not know
    return called == code_path.qualname and same_file(str(source.path), code.co_filename)


def _name(code_path: CodePath) -> str:
    return code_path.qualname.rpartition(".")[2]


def same_file(a: str, b: str | None) -> bool:
    return a == b or (b is not None and os.path.realpath(a) == os.path.realpath(b))


def standing_at(code_path: CodePath) -> str:
    """Who put what stands at `code_path` now."""
    try:
        return origin(live(code_path))
    except (AttributeError, KeyError):
        return "something that does not define it"


def origin(value: Any) -> str:
    """Who put `value` there, as well as it can be named."""
    by = getattr(value, "_self_wrapper", None) or value
    code = getattr(by, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(by, '__module__', type(by).__module__)}.{getattr(by, '__qualname__', type(by).__qualname__)}{where}"
