"""Proof of sglang.mamba2-h-grid: prompts of a batch, whose states at chunks of their own are cached, and who continues them.

What is real and what is played: `attnfix.patches.lab.sglang.mamba2`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab.proof import Observation, combine, replaced
from attnfix.patches.lab.sglang.mamba2 import CHUNK, Mamba2Layer, Request, Server


class Proof(Mamba2Layer):
    together = True
    around = {"`--prefill-max-requests 1`": {"together": False}}

    def _prefill(self, server: Server, rows: dict[Request, int], branches: dict[Request, int]) -> Observation:
        """Of all requests in one batch, or of each in its own."""
        batches = [rows] if self.together else [{request: new} for request, new in rows.items()]
        return combine(*(server.prefill(batch, {one: at for one, at in branches.items() if one in batch}) for batch in batches))

    def scenario(self, seed: int) -> Iterator[Observation]:
        """No request with a prefix, then one whose prefix was computed beside another, and a branching point."""
        server = Server(self, seed)
        first = server.fresh(CHUNK + 3)
        yield self._prefill(server, {server.fresh(3): 3, first: CHUNK + 3}, {})
        off, hit, forked = server.fresh(CHUNK + 10), server.behind(first, CHUNK + 3), server.fresh(2 * CHUNK)
        batch = {server.fresh(6): 6, off: CHUNK + 10, hit: CHUNK + 3, forked: 2 * CHUNK}  # from 6, 32 and 51 on
        yield self._prefill(server, batch, {forked: CHUNK})
        yield from map(server.cached, (first, off, hit, forked))

    def control(self, seed: int) -> Observation:
        """One request alone; whole chunks before others; only last states behind a part of a chunk; no states tracked."""
        server = Server(self, seed)
        first = server.fresh(CHUNK + 3)
        seen = [server.prefill({first: CHUNK + 3})]
        whole, other, short, last = server.behind(first, CHUNK), server.fresh(CHUNK + 2), server.fresh(3), server.fresh(CHUNK)
        seen += [server.prefill({whole: CHUNK, other: CHUNK + 2, short: 3}), server.prefill({server.fresh(5): 5, last: CHUNK})]
        seen += [server.cached(request) for request in (first, whole, other, last)]
        server = Server(self, seed, tracks=False)
        seen += [server.prefill({server.fresh(5): 5, server.fresh(CHUNK + 3): CHUNK + 3})]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        import torch

        from . import wrap

        sources: Any = wrap.sources
        batches: list[Any] = []

        def first_batch_alone(batch: Any, chunk: int) -> Any:
            batches.append(batch)
            return sources(batch, chunk) if len(batches) == 1 else (None, None, 0)

        def engines_count_on_the_grid(batch: Any, chunk: int) -> Any:
            source, between, rows = sources(batch, chunk)
            computed = torch.isin(source, between.homes)
            return torch.where(computed, source, source - 1), between, rows

        def ends_early(batch: Any, chunk: int) -> Any:
            source, between, rows = sources(batch, chunk)
            odd = torch.arange(len(between.bounds), dtype=torch.int32) % 2
            return source, between._replace(bounds=between.bounds - odd), rows

        def at_home_elsewhere(batch: Any, chunk: int) -> Any:
            source, between, rows = sources(batch, chunk)
            return source, between._replace(homes=between.homes.flip(0)), rows

        return {
            "the first batch alone is corrected": replaced(wrap, "sources", first_batch_alone),
            "on the grid the engine's count stays": replaced(wrap, "sources", engines_count_on_the_grid),
            "states are computed one token early": replaced(wrap, "sources", ends_early),
            "requests get one another's states": replaced(wrap, "sources", at_home_elsewhere),
        }
