"""Proof of sglang.mamba2-initial-state: few new tokens behind a cached prefix, through a Mamba2 layer whose states are tracked.

What is real and what is played: `attnfix.patches.lab.sglang.mamba2`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab.proof import Observation, combine, replaced
from attnfix.patches.lab.sglang.mamba2 import CHUNK, Mamba2Layer, Server

_CACHED = 2 * CHUNK  # tokens of the prefix that requests share


class Proof(Mamba2Layer):
    tracks = True
    around = {"`--disable-overlap-schedule`": {"tracks": False}}

    def scenario(self, seed: int) -> Iterator[Observation]:
        """A few new tokens behind a prefix, beside other requests; prompts whose last part is short; and who comes after."""
        server = Server(self, seed, self.tracks)
        first = server.fresh(_CACHED + 5)
        yield server.prefill({first: _CACHED + 5})
        hit, long, last, other = (
            server.behind(first, 12), server.behind(first, CHUNK + 3), server.fresh(CHUNK + 7), server.fresh(_CACHED + 3)
        )  # fmt: skip
        yield server.prefill({other: _CACHED + 3, hit: 5, server.fresh(4): 4, last: CHUNK, long: CHUNK + 3})
        yield server.prefill({hit: 7, last: 7, server.behind(other, 6): 6})
        yield server.prefill({server.behind(first, 3): 3})

    def control(self, seed: int) -> Observation:
        """As much as a chunk behind a prefix, fewer tokens behind none; and the scenario where no states are tracked."""
        server = Server(self, seed)
        first = server.fresh(_CACHED + 5)
        seen = [server.prefill({first: _CACHED + 5})]
        seen += [server.prefill({server.fresh(4): 4, server.behind(first, CHUNK): CHUNK})]
        server = Server(self, seed, tracks=False)
        first = server.fresh(_CACHED)
        seen += [server.prefill({first: _CACHED}), server.prefill({server.behind(first, 5): 5, server.fresh(3): 3})]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.without_mask

        def first_alone(batch: Any) -> Any:
            view = real(batch)
            view.mamba_track_mask = batch.mamba_track_mask.clone()
            view.mamba_track_mask[: len(view.mamba_track_mask) // 2] = True
            return view

        def for_good(batch: Any) -> Any:
            batch.mamba_track_mask = None
            return batch

        def fresh_ones_too(batch: Any) -> Any:
            view = real(batch)
            view.extend_prefix_lens = batch.extend_prefix_lens + 1
            return view

        return {
            "the mask is seen": replaced(wrap, "without_mask", lambda batch: batch),
            "some requests are missed": replaced(wrap, "without_mask", first_alone),
            "the states of the batch are tracked no more": replaced(wrap, "without_mask", for_good),
            "fresh requests begin with a state, too": replaced(wrap, "without_mask", fresh_ones_too),
        }
