"""Arrays of numpy over the host's memory: their reads and writes are the host's."""

from __future__ import annotations

from typing import Any

import numpy as np

from .memory import Memory
from .recorder import Order


def watched(order: Order, array: Any) -> Any:
    """The array, whose items and arithmetic are recorded as what this thread reads and writes."""
    kind = type("ndarray", (_Watched,), {"order": order})
    return array.view(kind)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return np.asarray(value) if isinstance(value, _Watched) else value


class _Watched(np.ndarray):  # type: ignore[type-arg]
    order: Order

    def __setitem__(self, key: Any, value: Any) -> None:
        self._tell(self._item(key), written=True)
        np.asarray(self)[_plain(key)] = _plain(value)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(found, _Watched) or not np.shares_memory(found, self):
            self._tell(self._item(key), written=False)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
        for one in inputs:
            if isinstance(one, _Watched):
                one._tell(np.asarray(one), written=False)
        for one in out:
            if isinstance(one, _Watched):
                one._tell(np.asarray(one), written=True)
        plain = [_plain(one) for one in inputs]
        if out:
            kwargs["out"] = _plain(tuple(out))
        result = getattr(ufunc, method)(*plain, **kwargs)
        return out[0] if len(out) == 1 else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        writes = function.__name__ in ("copyto", "put", "fill_diagonal")
        first = kwargs.get("out") if "out" in kwargs else (args[0] if writes else None)
        for one in [*args, *kwargs.values()]:
            if isinstance(one, _Watched):
                one._tell(np.asarray(one), written=one is first)
        plain = [_plain(one) for one in args]
        named = {name: _plain(one) for name, one in kwargs.items()}
        return function(*plain, **named)

    def fill(self, value: Any) -> None:
        self[...] = value

    def _item(self, key: Any) -> Any:
        """The elements of `self[key]`, as addresses would have them."""
        return np.asarray(self), key

    def _tell(self, what: Any, written: bool) -> None:
        array, key = what if isinstance(what, tuple) else (what, ...)
        where = self.order.of_array(array)
        if where is None:
            return
        found, start = where
        places = np.zeros((), dtype=np.int64)
        for length, stride in zip(array.shape, array.strides):
            places = places[..., None] + np.arange(length) * stride
        chosen = np.unique(np.asarray(places[_plain(key)]).ravel())
        cells = (start + chosen[:, None] + np.arange(array.itemsize)).ravel()
        region: list[tuple[Memory, Any]] = [(found, cells)]
        self.order.operate("numpy", [] if written else region, region if written else [], sync=False)
