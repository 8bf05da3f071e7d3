"""Where a fix sits in the engine: a wrapper on a function, an override in a class, a class attribute.

`take` swaps it in as soon as the module is there; wrappers pass through until their fix is armed, an attribute waits for it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import islice
from types import FunctionType
from typing import Any

from . import captured, gate, in_memory, loaded
from .fix import Attribute, Override, Place, Target
from .states import CONFLICT, LATE, FixState
from .wrapping import TargetWrapper, live, owner_of, stands, swap

_NONE = object()
_HEAD = re.compile(rb"\s*(?:async\s+)?def\s+(\w+)")


class Refused(Exception):
    """A target cannot be taken here; carries the state the fix ends in."""

    def __init__(self, state: str, reason: str):
        super().__init__(reason)
        self.state = state


class WrapperSeat:
    """A wrapper on the function at `place`, shared with every other fix that has a correction there."""

    def __init__(self, place: Place, wrapper: TargetWrapper, state: FixState):
        self.place, self.wrapper, self.state = place, wrapper, state

    @property
    def stands(self) -> bool:
        return stands(self.place, self.wrapper.function)

    def arm(self) -> None:
        """Nothing to do: the wrapper asks whether its fix is armed."""

    disarm = arm

    def withdraw(self) -> None:
        self.wrapper.remove(self.state)
        if not self.wrapper.in_use and self.stands:
            swap(self.place, self.wrapper.wrapped)


class OverrideSeat(WrapperSeat):
    """A wrapper on the heir: taken off, the inherited method is there again."""

    def withdraw(self) -> None:
        self.wrapper.remove(self.state)
        if not self.wrapper.in_use and self.stands:
            delattr(owner_of(self.place), _name(self.place))


class AttributeSeat:
    """A class attribute: ours while the fix is armed, else what the class had, or nothing."""

    def __init__(self, place: Place, value: Any):
        self.place, self.value = place, value
        self.former: Any = _NONE
        self.armed = False

    @property
    def stands(self) -> bool:
        return not self.armed or stands(self.place, self.value)

    def arm(self) -> None:
        if self.armed:
            return
        with suppress(KeyError):
            self.former = live(self.place)
        self.armed = True  # first: what is swapped in must never be left behind
        swap(self.place, self.value)

    def disarm(self) -> None:
        if self.armed and self.stands:
            if self.former is _NONE:
                delattr(owner_of(self.place), _name(self.place))
            else:
                swap(self.place, self.former)
        self.armed = False

    withdraw = disarm


Seat = WrapperSeat | AttributeSeat


def home(target: Target | Override | Attribute, present: frozenset[Place], sources: gate.Sources) -> Place | None:
    """The one of the target's places that the judged code has; for a class member that is yet to come, its class decides."""
    for place in target.places:
        if place in present or (not isinstance(target, Target) and gate.locate(place.owner, sources) is not None):
            return place
    return None


def take(target: Target | Override | Attribute, place: Place, state: FixState, late: bool, sources: gate.Sources) -> Seat:
    """Swap in what `target` asks for at `place`. Raises Refused where something else stands there."""
    if isinstance(target, Attribute):
        owner_of(place)  # AttributeError: no such class
        return AttributeSeat(place, target.value)
    if isinstance(target, Override):
        return OverrideSeat(place, _override(target, place, late, sources).add(state, target.correction), state)
    return WrapperSeat(place, _wrap(place, target.by_name, late, sources).add(state, target.correction), state)


def _wrap(place: Place, by_name: bool, late: bool, sources: gate.Sources) -> TargetWrapper:
    try:
        standing = live(place)
    except KeyError:
        raise Refused(CONFLICT, f"{place.owner.qualname} was replaced by {origin(owner_of(place))}") from None
    if known := TargetWrapper.of(standing):
        return known
    _check_plain(place, standing, late, sources)
    wrapper = TargetWrapper(standing, place, by_name)
    swap(place, wrapper.function)
    if late and (held := captured.rebind(standing, wrapper)):
        swap(place, standing)
        raise _late(place, held)
    return wrapper


def _override(target: Override, place: Place, late: bool, sources: gate.Sources) -> TargetWrapper:
    heir = owner_of(place)
    standing = vars(heir).get(_name(place), _NONE)
    if known := TargetWrapper.of(standing):
        return known
    if standing is not _NONE:
        raise Refused(CONFLICT, f"{place.qualname} is defined by {origin(standing)}")
    base = next(base for base in map(Place.parse, target.of) if gate.locate(base, sources) is not None)
    inherited = getattr(heir, _name(place))
    known = TargetWrapper.of(inherited)
    _check_plain(base, known.wrapped if known else inherited, late, sources)
    if late and (held := captured.bound_to(inherited, heir)):
        raise _late(place, held)
    wrapper = TargetWrapper(inherited, place)
    swap(place, wrapper.function)
    return wrapper


def _late(place: Place, held: str) -> Refused:
    return Refused(LATE, f"{place.qualname} was already held by {held}; activate attnfix before the engine loads")


def _check_plain(place: Place, standing: Any, late: bool, sources: gate.Sources) -> None:
    """Refuse a target that is not the plain function which stands at `place` in the judged file. In one that was loaded a
    while ago somebody may have put other code."""
    if type(standing) is not FunctionType:
        raise Refused(CONFLICT, f"{place.qualname} is already wrapped or replaced by {origin(standing)}")
    source = sources[place.module]
    if source is None or not _is_defined_in(source, place, standing):
        raise Refused(CONFLICT, f"{place.qualname} was replaced by {origin(standing)}")
    # A parse costs 20 ms, more than all else here together: only where the file may have been replaced since it was imported
    compare = late or in_memory.may_differ(loaded.module(place.module), source.path, sources.root)
    if compare and not in_memory.is_defined(standing, place, sources):
        raise Refused(CONFLICT, f"{place.qualname} is not what its file defines: {origin(standing)}")


def _is_defined_in(source: gate.Source, place: Place, function: FunctionType) -> bool:
    """Whether `function` came from the judged file, by what its code says of itself: name, file and line, with a definition of
    that name on the line."""
    if not says_so(source, place, function):
        return False
    code = function.__code__
    lines = islice(source.lines, code.co_firstlineno - 1, None)
    first = next(lines, b"")
    decorated = first.lstrip().startswith(b"@")
    head = next(filter(None, map(_HEAD.match, lines)), None) if decorated else _HEAD.match(first)
    return head is not None and head[1].decode() == _name(place)


def says_so(source: gate.Source, place: Place, function: FunctionType) -> bool:
    """Whether the code of a function says that it is the one at `place` in the judged file."""
    code = function.__code__
    called = getattr(code, "co_qualname", function.__qualname__)  # before Python 3.11 the code does not know
    return called == place.qualname and same_file(str(source.path), code.co_filename)


def _name(place: Place) -> str:
    return place.qualname.rpartition(".")[2]


def same_file(a: str, b: str | None) -> bool:
    return a == b or (b is not None and os.path.realpath(a) == os.path.realpath(b))


def standing_at(place: Place) -> str:
    """Who put what stands at `place` now."""
    try:
        return origin(live(place))
    except (AttributeError, KeyError):
        return "something that does not define it"


def origin(value: Any) -> str:
    """Who put `value` there, as well as it can be named."""
    by = getattr(value, "_self_wrapper", None) or value
    code = getattr(by, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(by, '__module__', type(by).__module__)}.{getattr(by, '__qualname__', type(by).__qualname__)}{where}"
