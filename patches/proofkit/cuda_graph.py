"""A CUDA graph as far as attention sees it, for proofs that run without a GPU."""

from __future__ import annotations

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
            result = kernel(*args, **kwargs)
            self._launches.append((kernel, args, kwargs, result))
            return result

        return launch

    def replay(self) -> None:
        for kernel, args, kwargs, result in self._launches:
            again = kernel(*args, **kwargs)
            if result is not None:
                for static, new in zip(_tensors(result), _tensors(again), strict=True):
                    static.copy_(new)


def _tensors(result: Any) -> tuple:
    return result if isinstance(result, tuple) else (result,)
