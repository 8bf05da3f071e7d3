"""Decode context parallelism on the CPU: the ranks of a group are threads, and the engine's combine over them runs in Triton's
interpreter, for proofs whose code talks to other ranks.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from typing import Any

_launch = threading.RLock()


def prepare(backend: Any) -> None:
    """Make the combine that the module `backend` calls, `cp_lse_ag_out_rs`, run in the interpreter."""
    one_launch_at_a_time()
    combine: Any = sys.modules[backend.cp_lse_ag_out_rs.__module__]
    if launcher := getattr(combine, "_CORRECT_ATTN_CP_OUT_KERNEL", None):  # from 0.30; it asks what the interpreter's lacks
        parameters = signature(launcher.kernel.fn).parameters.values()
        launcher.kernel.constexprs = [at for at, one in enumerate(parameters) if "constexpr" in str(one.annotation)]


def one_launch_at_a_time() -> None:
    """Triton's interpreter is not made for several threads. Nothing of the engine is replaced: what launches is a witness."""
    from triton.runtime.interpreter import InterpretedFunction

    run = InterpretedFunction.run
    if run.__name__ == "one_at_a_time":
        return

    def one_at_a_time(*args: Any, **kwargs: Any) -> Any:
        with _launch:
            return run(*args, **kwargs)

    InterpretedFunction.run = one_at_a_time


class Group:
    """The group of ranks, each of which is a thread that says which one it is."""

    def __init__(self, size: int) -> None:
        self.world_size = size
        self._here = threading.local()
        self._shared: list[Any] = [None] * size
        self._all = threading.Barrier(size, timeout=60)
        self._errors: list[Exception] = []

    def on_all(self, step: Any, *args: Any) -> list:
        """What `step(rank, *args)` returns on each rank. Raises what the first rank to fail raised."""
        self._all.reset()
        self._errors.clear()
        with ThreadPoolExecutor(self.world_size) as threads:
            results = [threads.submit(self._on, rank, step, *args) for rank in range(self.world_size)]
        if self._errors:
            raise self._errors[0]
        return [result.result() for result in results]

    def _on(self, rank: int, step: Any, *args: Any) -> Any:
        self._here.rank = rank
        try:
            return step(rank, *args)
        except threading.BrokenBarrierError:  # another rank failed
            raise
        except Exception as error:
            self._errors.append(error)
            self._all.abort()
            raise

    @property
    def rank_in_group(self) -> int:
        return self._here.rank

    def all_gather(self, local: Any, dim: int) -> Any:
        import torch

        return torch.cat(self._exchange(local), dim)

    def reduce_scatter(self, local: Any, dim: int) -> Any:
        return sum(self._exchange(local)).chunk(self.world_size, dim)[self.rank_in_group].contiguous()

    def _exchange(self, local: Any) -> list:
        self._shared[self.rank_in_group] = local
        self._all.wait()
        everyone = [x.clone() for x in self._shared]
        self._all.wait()
        return everyone
