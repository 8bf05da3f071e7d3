"""Shadow of a storage: who wrote each byte last, and who has read it since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .clocks import Actor

#: Bytes of a storage: a slice of it, or their numbers
Cells = slice | NDArray[np.int64]

DEVICE, PINNED, HOST = "device", "pinned", "host"
#: Storages with more bytes than the key have cells of so many bytes
_GRAINS = ((1 << 22, 1), (1 << 26, 16), (1 << 62, 256))


class Memory:
    """A storage of `size` bytes. kind: DEVICE, PINNED or HOST (pageable). home: the stream that it was allocated on."""

    def __init__(self, kind: str, name: str, address: int, size: int, home: Actor | None):
        self.kind, self.name, self.address, self.size, self.home = kind, name, address, size, home
        self.grain = next(grain for most, grain in _GRAINS if size <= most)
        #: Streams that the allocator knows of (`record_stream`)
        self.known_streams: set[int] = set()
        self._writer: NDArray[np.int32] | None = None
        self._readers: dict[int, NDArray[np.int32]] = {}
        self._void: NDArray[np.int32] | None = None

    def cells(self, found: Cells) -> Cells:
        """The cells that hold these bytes."""
        if self.grain == 1:
            return found
        if isinstance(found, slice):
            return slice(found.start // self.grain, -(-found.stop // self.grain))
        return np.unique(found // self.grain)

    def writers(self, cells: Cells) -> Iterator[int]:
        """Numbers of the operations that wrote these cells last."""
        return iter(()) if self._writer is None else _distinct(self._writer[cells])

    def readers(self, cells: Cells) -> Iterator[int]:
        """Numbers of the operations that have read these cells since, the last of each actor."""
        for seen in self._readers.values():
            yield from _distinct(seen[cells])

    def void(self, cells: Cells) -> Iterator[int]:
        """Numbers of the operations that handed these cells over, where nobody has written since."""
        return iter(()) if self._void is None else _distinct(self._void[cells])

    def read(self, cells: Cells, actor: Actor, number: int) -> None:
        if actor.number not in self._readers:
            self._readers[actor.number] = self._new()
        self._readers[actor.number][cells] = number

    def written(self, cells: Cells, number: int) -> None:
        if self._writer is None:
            self._writer = self._new()
        self._writer[cells] = number
        for seen in self._readers.values():
            seen[cells] = 0
        if self._void is not None:
            self._void[cells] = 0

    def hand_over(self, cells: Cells, number: int) -> None:
        if self._void is None:
            self._void = self._new()
        self._void[cells] = number

    def everything(self) -> Iterator[int]:
        """Numbers of all operations that are the last on a cell."""
        whole = slice(None)
        yield from self.writers(whole)
        yield from self.readers(whole)

    def _new(self) -> NDArray[np.int32]:
        return np.zeros(-(-self.size // self.grain), dtype=np.int32)


def _distinct(numbers: NDArray[np.int32]) -> Iterator[int]:
    if not numbers.size:
        return
    first = numbers[0]
    found = [first] if (numbers == first).all() else np.unique(numbers)
    yield from (int(one) for one in found if one)


def bytes_of(tensor: Any) -> Cells:
    """The bytes of a strided tensor, in its storage."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if tensor.is_contiguous():
        return slice(start, start + tensor.numel() * size)
    outer, run = _runs(tensor.shape, tensor.stride())
    return _spread(start + outer * size, run * size)


def bytes_of_rows(tensor: Any, rows: Any) -> Cells:
    """The bytes of `tensor[rows]`: `rows` are numbers of its first dimension."""
    size = tensor.element_size()
    chosen = np.asarray(rows, dtype=np.int64).ravel()
    chosen = np.unique(np.where(chosen < 0, chosen + tensor.shape[0], chosen))
    outer, run = _runs(tensor.shape[1:], tensor.stride()[1:])
    starts = (tensor.storage_offset() + chosen[:, None] * tensor.stride(0) + outer[None, :]) * size
    return _spread(starts.ravel(), run * size)


def bytes_of_chosen(tensor: Any, choose: Callable[[Any], Any]) -> Cells:
    """The bytes of the elements that `choose` takes out of a tensor of this shape."""
    import torch

    places = np.zeros((), dtype=np.int64)
    for length, stride in zip(tensor.shape, tensor.stride()):
        places = places[..., None] + np.arange(length) * stride
    chosen = choose(torch.from_numpy(np.ascontiguousarray(places))).numpy()
    size = tensor.element_size()
    return _spread((tensor.storage_offset() + np.unique(chosen)) * size, size)


def _runs(shape: Sequence[int], strides: Sequence[int]) -> tuple[NDArray[np.int64], int]:
    """First elements of the runs of a strided tensor, and how many elements follow each other in a run."""
    dims = [(length, stride) for length, stride in zip(shape, strides) if length != 1 and stride != 0]
    dims.sort(key=lambda one: one[1])
    run = 1
    while dims and dims[0][1] == run:
        run *= dims.pop(0)[0]
    outer = np.zeros(1, dtype=np.int64)
    for length, stride in dims:
        outer = (outer[:, None] + np.arange(length) * stride).ravel()
    return (outer if 0 not in shape else outer[:0]), run


def _spread(starts: NDArray[np.int64], run: int) -> Cells:
    if len(starts) == 1:
        return slice(int(starts[0]), int(starts[0]) + run)
    return (starts[:, None] + np.arange(run)).ravel()
