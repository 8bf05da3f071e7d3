"""Proof of sglang.mamba2-h-grid: prompts of a batch, whose states at chunks of their own are cached, and who continues them.

What is real and what is played: `attnfix.patches.proofkit.sglang.mamba2`.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.proofkit.proof import Observation, combine, replaced
from attnfix.patches.proofkit.sglang.mamba2 import CHUNK, Mamba2Layer, Server

_CACHED = 2 * CHUNK


class Proof(Mamba2Layer):
    def scenario(self, seed: int) -> Observation:
        """Requests that begin off the grid of the batch, on it behind shorter ones, and behind a prefix; a branching point."""
        server = Server(self, seed, rows=14)
        first = server.fresh(_CACHED + 5)
        seen = [server.prefill({first: _CACHED + 5})]
        off, hit = server.fresh(CHUNK + 10), server.behind(first, 2 * CHUNK + 3)  # from 6 and 32 on
        whole, forked = server.fresh(CHUNK), server.fresh(3 * CHUNK)  # from 67 and 83 on
        last = server.behind(first, CHUNK + 8)  # from 131 on
        batch = {server.fresh(6): 6, off: CHUNK + 10, hit: 2 * CHUNK + 3, whole: CHUNK, forked: 3 * CHUNK, last: CHUNK + 8}
        seen += [server.prefill(batch, {forked: CHUNK})]
        seen += [server.cached(request) for request in (first, off, hit, whole, forked, last)]
        alone = [server.behind(off, CHUNK + 1), server.behind(last, CHUNK)]
        seen += [server.prefill({request: len(request.text) - request.done}) for request in alone]
        fresh = server.fresh(CHUNK + 4), server.fresh(CHUNK + 9)  # no request with a prefix
        seen += [server.prefill({request: len(request.text) for request in fresh})]
        return combine(*seen, *map(server.cached, fresh))

    def control(self, seed: int) -> Observation:
        """One request alone; whole chunks before another; a batch whose last requests are not tracked; no states tracked."""
        server = Server(self, seed, rows=14)
        first = server.fresh(_CACHED + 5)
        seen = [server.prefill({first: _CACHED + 5})]
        whole, other, short = server.behind(first, CHUNK), server.fresh(CHUNK + 7), server.fresh(CHUNK - 1)
        seen += [server.prefill({whole: CHUNK, other: CHUNK + 7, short: CHUNK - 1})]
        seen += [server.prefill({server.fresh(5): 5, (last := server.fresh(2 * CHUNK)): 2 * CHUNK})]
        seen += [server.cached(request) for request in (first, whole, other, last)]
        server = Server(self, seed, tracks=False)
        seen += [server.prefill({server.fresh(5): 5, server.fresh(CHUNK + 3): CHUNK + 3})]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        import torch

        from . import wrap

        sources, states_between, batches = wrap.sources, wrap.states_between, []

        def first_batch_alone(batch: Any, chunk: int) -> Any:
            batches.append(batch)
            return sources(batch, chunk) if len(batches) == 1 else (None, None, 0)

        def none_between(batch: Any, chunk: int) -> Any:
            source, _, rows = sources(batch, chunk)
            return source, None, rows

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

        def last_one_missed(*args: Any) -> Any:
            states = states_between(*args)
            states[-1] = 0
            return states

        return {
            "no batch is looked at": replaced(wrap, "misses", lambda *_: False),
            "the first batch alone is corrected": replaced(wrap, "sources", first_batch_alone),
            "no state is computed between chunks": replaced(wrap, "sources", none_between),
            "on the grid the engine's count stays": replaced(wrap, "sources", engines_count_on_the_grid),
            "states are computed one token early": replaced(wrap, "sources", ends_early),
            "requests get one another's states": replaced(wrap, "sources", at_home_elsewhere),
            "the last state is not computed": replaced(wrap, "states_between", last_one_missed),
        }
