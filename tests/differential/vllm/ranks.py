"""The ranks of one server in one process. One runs at a time; where it talks to the others it waits, and they run.

Each rank has a thread of its own, and its own values of what the engine keeps in its modules: a process has one of each.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

#: module -> its names that belong to a rank
_OWN = {
    "vllm.forward_context": ("_forward_context",),
    "vllm.config.vllm": ("_current_vllm_config", "_current_prefix"),
    "vllm.distributed.parallel_state": ("_TP", "_DCP", "_PP", "_DP", "_EP", "_PCP", "_WORLD"),
    "vllm.v1.worker.workspace": ("_manager",),
}
_WAIT_S = 600


class NoPartner(RuntimeError):
    """A rank waits for the others, and they wait for something else or have ended."""


class Ranks:
    """A group of `size` ranks as the engine sees it, too."""

    def __init__(self, size: int):
        self.world_size = size
        self._turn = threading.Condition()
        self._running, self._done = 0, [True] * size
        self._given: list[list[Any]] = [[] for _ in range(size)]
        self._own: list[dict[tuple[str, str], Any]] = [{} for _ in range(size)]
        self._here = threading.local()
        self._errors: list[BaseException] = []
        self._work: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(size)]
        self._results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        if size > 1:
            for rank in range(size):
                threading.Thread(target=self._serve, args=(rank,), daemon=True).start()
        else:
            self._here.rank = 0

    # what this process asks for

    def on_all(self, step: Callable[[int], Any]) -> list[Any]:
        """What `step(rank)` returns on each rank. Raises what the first rank to fail raised."""
        if self.world_size == 1:
            return [step(0)]
        return self._run(step, range(self.world_size))

    def on_first(self, step: Callable[[], Any]) -> Any:
        """The same of the first rank alone."""
        return step() if self.world_size == 1 else self._run(lambda rank: step(), [0])[0]

    def _run(self, step: Callable[[int], Any], ranks: Any) -> list[Any]:
        self._errors.clear()
        self._given = [[] for _ in self._given]
        self._done = [rank not in ranks for rank in range(self.world_size)]
        self._running = ranks[0]
        for rank in ranks:
            self._work[rank].put(step)
        results = dict(self._results.get(timeout=_WAIT_S) for _ in ranks)
        if self._errors:
            raise self._errors[0]
        return [results[rank] for rank in ranks]

    def _serve(self, rank: int) -> None:
        self._here.rank = rank
        while True:
            step, result = self._work[rank].get(), None
            self._wait(rank)
            try:
                if not self._errors:
                    result = step(rank)
            except BaseException as error:
                self._errors.append(error)
            self._save(rank)
            self._done[rank] = True
            self._pass_on(rank)
            self._results.put((rank, result))

    # turns

    def _wait(self, rank: int) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._running == rank, timeout=_WAIT_S)
        for (module, name), value in self._own[rank].items():
            vars(sys.modules[module])[name] = value

    def _save(self, rank: int) -> None:
        for module in filter(sys.modules.get, _OWN):
            held = vars(sys.modules[module])
            self._own[rank] |= {(module, name): held[name] for name in _OWN[module] if name in held}

    def _pass_on(self, rank: int) -> None:
        others = [(rank + more) % self.world_size for more in range(1, self.world_size + 1)]
        with self._turn:
            self._running = next((other for other in others if not self._done[other]), -1)
            self._turn.notify_all()

    # what the engine asks of a group

    @property
    def rank_in_group(self) -> int:
        return self._here.rank  # type: ignore[no-any-return]

    rank = local_rank = rank_in_group

    @property
    def ranks(self) -> list[int]:
        return list(range(self.world_size))

    first_rank = 0

    @property
    def device_group(self) -> Ranks:
        """What torch.distributed is handed (`stand_in`)."""
        return self

    cpu_group = device_group

    def size(self) -> int:
        return self.world_size

    @property
    def last_rank(self) -> int:
        return self.world_size - 1

    @property
    def is_first_rank(self) -> bool:
        return self.rank_in_group == 0

    @property
    def is_last_rank(self) -> bool:
        return self.rank_in_group == self.last_rank

    def all_gather(self, local: Any, dim: int = -1) -> Any:
        return torch.cat(self._exchange(local), dim)

    def reduce_scatter(self, local: Any, dim: int = -1) -> Any:
        return sum(self._exchange(local)).chunk(self.world_size, dim)[self.rank_in_group].contiguous()

    def all_reduce(self, local: Any) -> Any:
        return sum(self._exchange(local))

    def _exchange(self, local: Any) -> list[Any]:
        rank = self.rank_in_group
        number = len(self._given[rank])
        self._given[rank].append(local.clone())
        while any(len(given) <= number for given in self._given):
            if self._errors or any(done and len(self._given[other]) <= number for other, done in enumerate(self._done)):
                raise NoPartner(f"rank {rank} waits for the others")
            self._save(rank)
            self._pass_on(rank)
            self._wait(rank)
        return [given[number].clone() for given in self._given]


def stand_in() -> None:
    """What the engine asks of torch.distributed, with such a group."""

    def all_gather(out: Any, local: Any, group: Ranks, **more: Any) -> None:
        out.copy_(group.all_gather(local, 0).view(out.shape))

    distributed: Any = torch.distributed
    for name in ("all_gather_into_tensor", "all_gather_single", "_all_gather_base"):
        if hasattr(distributed, name):
            setattr(distributed, name, all_gather)
