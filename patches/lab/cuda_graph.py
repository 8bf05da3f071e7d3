"""A CUDA graph as far as attention sees it, for proofs that run without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Graph:
    """Launches with the arguments of capture, repeated by every replay.

    A tensor is captured by its address: a replay reads what lies there then. A number is captured by its value.
    """

    def __init__(self) -> None:
        self._launches: list[tuple] = []

    def recorded(self, kernel: Any) -> Any:
        """`kernel`, whose launches this graph repeats. It returns a tensor, several, or None."""

        def launch(*args: Any, **kwargs: Any) -> Any:
            from torch.utils._python_dispatch import _disable_current_modes

            with _disable_current_modes():  # what a stand-in computes with is one launch
                result = kernel(*args, **kwargs)
            self._launches.append((kernel, args, kwargs, result))
            return result

        return launch

    @contextmanager
    def recording(self) -> Iterator[None]:
        """What operators of torch do here, this graph repeats, too."""
        from torch.utils._python_dispatch import TorchDispatchMode

        launches = self._launches

        class Operators(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
                result = function(*args, **(kwargs or {}))
                launches.append((function, args, kwargs or {}, result))
                return result

        with Operators():
            yield

    def replay(self) -> None:
        for kernel, args, kwargs, result in self._launches:
            again = kernel(*args, **kwargs)
            for static, new in zip(_tensors(result), _tensors(again), strict=True):
                if static.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():  # else it lies there already
                    static.copy_(new)


def _tensors(result: Any) -> list:
    import torch
    from torch.utils._pytree import tree_leaves

    return [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
