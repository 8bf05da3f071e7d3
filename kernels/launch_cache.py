"""Launches that can be repeated without another look at their arguments.

Engines call an op with the same shapes, strides, dtypes and options in every layer of a step, mostly at the same
addresses too. Checking them takes several times as long as launching. So a checked launch is kept: torch compares all
tensors with those it was checked for in one call, and the addresses are looked up among those that were checked. Anything
new takes the long way. Each thread keeps its own: a launch holds an argument block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from .driver import Launch

Options = tuple[Hashable, ...]

_KEPT = 8  # launches per op and thread
_ADDRESSES = 4096  # per launch


class Prepared:
    """One checked launch, for tensors that are the `same` as those it was checked for, at one of the `addresses`."""

    __slots__ = ("addresses", "launch", "options", "same")

    def __init__(self, launch: Launch, same: Callable[..., bool], options: Options) -> None:
        self.launch = launch
        self.same = same
        self.options = options
        self.addresses: set[tuple[int, ...]] = set()


class Cache(threading.local):
    """The launches of one op that this thread prepared, the latest used first."""

    def __init__(self) -> None:
        self._kept: list[Prepared] = []

    def find(self, tensors: Sequence[torch.Tensor], options: Options) -> Prepared | None:
        for prepared in self._kept:
            try:
                if prepared.options == options and prepared.same(*tensors):
                    break
            except TypeError:  # another number of tensors, or something else than one
                pass
        else:
            return None
        if prepared is not self._kept[0]:
            self._kept.remove(prepared)
            self._kept.insert(0, prepared)
        return prepared

    def add(self, launch: Launch, tensors: Sequence[torch.Tensor], options: Options, addresses: tuple[int, ...]) -> None:
        """Keep a launch whose arguments have been checked."""
        found = self.find(tensors, options)
        if found is None:
            same = _comparison(tensors)
            if same is None:
                return
            found = Prepared(launch, same, options)
            self._kept = [found, *self._kept[: _KEPT - 1]]
        if len(found.addresses) >= _ADDRESSES:
            found.addresses.clear()
        found.addresses.add(addresses)

    def forget(self) -> None:
        """Of a forked child: the parent's handles mean nothing there."""
        self._kept = []


def _comparison(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """torch's own comparison of tensors with these, which Dynamo relies on; None where this torch has another one."""
    try:
        guards: Any = torch._C._dynamo.guards.TensorGuards
        sizes, strides = ([list(get(t)) for t in tensors] for get in (torch.Tensor.size, torch.Tensor.stride))
        same = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return same if same(*tensors) is True else None
    except Exception:  # not a public interface
        return None
