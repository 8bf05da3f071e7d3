"""Records the launches of stand-ins in a side's fork: each entry point is wrapped wherever the engine has bound it."""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .launches import EntryPoint, Kept, Unrecordable, encode


def found(where: str) -> Any:
    """The object "module:name.name"."""
    module, _, names = where.partition(":")
    return functools.reduce(getattr, names.split("."), importlib.import_module(module))


class Recorder:
    def __init__(self, entry_points: Sequence[EntryPoint], most: int):
        self.kept = Kept(most)
        self._busy = False
        self._objects: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self._serials: list[Any] = []  # calls whose results are arguments of others
        self._made: dict[int, tuple[Any, Any]] = {}  # id of such a result -> itself, and its call
        for entry in entry_points:
            stand_in = found(entry.bound or entry.stand_in)
            if isinstance(stand_in, type):
                self._wrap_class(entry, stand_in)
            else:
                _rebind(stand_in, self._wrapped(entry, stand_in), entry.named)

    def _wrapped(self, entry: EntryPoint, kernel: Callable[..., Any]) -> Callable[..., Any]:
        names = tuple(entry.made)

        @functools.wraps(kernel)
        def launch(*args: Any, **kwargs: Any) -> Any:
            if self._busy:
                return kernel(*args, **kwargs)
            if entry.plans:  # a function that plans for an object, behind a first plan of its own
                call, state = self._call(entry.name, args[1:], kwargs, ()), self._objects.get(args[0])
                if state and call:
                    state["plan"] = [*state.get("plan", [])[:1], call]
                return self._quiet(kernel, args, kwargs)
            call = self._call("", args, kwargs, names)
            if call and entry.alone:  # before it is launched: a refusal is a result, too
                self.kept.offer({"entry": entry.name, "new": None, "plan": None, "call": call})
            result = self._quiet(kernel, args, kwargs)
            if call:
                self._remember(entry, call, result)
            return result

        return launch

    def _wrap_class(self, entry: EntryPoint, cls: type) -> None:
        def wrapped(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(method)
            def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
                if self._busy:
                    return method(owner, *args, **kwargs)
                said = self._call(name, args, kwargs, ())
                if said:
                    self._note(entry, owner, name, said)
                return self._quiet(method, (owner, *args), kwargs)

            return call

        for name in ("__init__", *entry.plans, *entry.runs):
            if method := getattr(cls, name, None):
                setattr(cls, name, wrapped(name, method))

    def _note(self, entry: EntryPoint, owner: Any, name: str, call: Any) -> None:
        state = self._objects.setdefault(owner, {})
        if name == "__init__":
            for one in call["kwargs"].values():  # what buffers hold then means nothing
                if isinstance(one, dict) and "values" in one:
                    one["values"] = 0
            state["new"] = call
        elif name in entry.plans:
            state["plan"] = [call]
        elif "new" in state and "plan" in state:
            self.kept.offer({"entry": entry.name, "new": state["new"], "plan": state["plan"], "call": call})

    def _call(self, of: str, args: Any, kwargs: Any, made: Sequence[str]) -> Any:
        try:
            makers: dict[str, Any] = {}
            for at, name in enumerate(made):
                if kwargs.get(name) is not None:
                    makers[name] = self._maker(kwargs[name], at, makers)
            more = {name: makers[name] if name in makers else _encoded(value) for name, value in kwargs.items()}
            return {"of": of, "args": [_encoded(value) for value in args], "kwargs": more}
        except Unrecordable as why:
            self.kept.skip(f"{of}: {why}")
            return None

    def _quiet(self, kernel: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What a stand-in calls inside is no launch of the engine's."""
        self._busy = True
        try:
            return kernel(*args, **kwargs)
        finally:
            self._busy = False

    # A scheduler's metadata: the replay has it made anew, by the call that made it

    def _remember(self, entry: EntryPoint, call: Any, result: Any) -> None:
        if entry.like:
            return
        call = {"made": entry.name, "at": None, "call": call}
        mark = _mark(result[0] if isinstance(result, tuple) else result)
        if mark is not None:
            self._serials.append(call)
            mark.fill_(len(self._serials))  # it survives a copy into a buffer of a graph
        for at, one in enumerate(result if isinstance(result, tuple) else ()):
            self._made[id(one)] = (one, {**call, "at": at})

    def _maker(self, value: Any, at: int, makers: dict[str, Any]) -> Any:
        """makers: of the arguments before this one; a copy of the second part of a schedule is known by the first."""
        if id(value) in self._made:
            return self._made[id(value)][1]
        if made := next((one for one in makers.values() if one["at"] is not None), None):
            return {**made, "at": at}
        mark = _mark(value)
        if mark is not None and 1 <= int(mark) <= len(self._serials):
            made = self._serials[int(mark) - 1]
            return made if value.dim() == 1 else {**made, "at": at}
        raise Unrecordable("an argument that another launch should have made")


def _mark(schedule: Any) -> Any:
    """A number of a schedule that no stand-in reads."""
    if not isinstance(schedule, torch.Tensor) or schedule.dtype != torch.int32:
        return None
    return schedule[0, -1] if schedule.dim() == 2 else schedule[1]


def _encoded(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.dim() == 1 and value.numel() > 1 << 20:
        return {"workspace": value.numel()}
    return encode(value)


def _rebind(former: Any, other: Any, named: str) -> None:
    """In every module but ours, and in every object that stands for a namespace of operators."""
    owners = [module for module in list(sys.modules.values()) if module is not None]
    owners += [getattr(torch.ops, name) for name in ("_C", "_C_cache_ops") if name in vars(torch.ops)]
    for owner in owners:
        if getattr(owner, "__name__", "").startswith("tests."):
            continue
        held = getattr(owner, "__dict__", {})
        for name in [name for name, value in list(held.items()) if value is former and name.endswith(named)]:
            setattr(owner, name, other)
