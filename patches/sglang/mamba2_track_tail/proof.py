"""Proof of sglang.mamba2-track-tail: decode of requests whose states are tracked, in graphs of several batch sizes.

What is real and what is played: `attnfix.patches.lab.sglang.mamba2`. The graph runner is played, too (`mamba2.Graphs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, replaced
from attnfix.patches.lab.sglang.mamba2 import BACKEND, CHUNK, Graphs, Mamba2Layer, Request, Server

_SIZES = (4, 3)


class Proof(Mamba2Layer):
    def prepare(self) -> None:
        super().prepare()
        if not hasattr(self.engine[BACKEND].Mamba2AttnBackend, "init_forward_metadata_out_graph"):
            raise NoSuchPath("metadata is not prepared by one function at capture and replay")

    def scenario(self, seed: int) -> Iterator[Observation]:
        """Four requests in the largest graph end a chunk; then two others do, in a smaller one that has a row of nobody."""
        server = Server(self, seed)
        graphs = Graphs(server, _SIZES)
        requests = self._prompts(server, *[CHUNK - 1] * 6)
        yield server.decode(requests[:4], graphs)
        yield server.decode(requests[4:], graphs)
        yield from map(server.cached, requests)

    def control(self, seed: int) -> Observation:
        """The largest graph, full and with rows of nobody; and no graph."""
        server = Server(self, seed)
        graphs = Graphs(server, _SIZES[:1])
        requests = self._prompts(server, CHUNK - 1, CHUNK - 2, 3, CHUNK - 2)
        seen = [server.decode(requests, graphs), server.decode(requests[:2], graphs), server.decode(requests[2:])]
        return combine(*seen, *(server.cached(requests[at]) for at in (0, 1, 3)))

    def _prompts(self, server: Server, *lengths: int) -> list[Request]:
        requests = [server.fresh(tokens) for tokens in lengths]
        server.prefill(dict(zip(requests, lengths)))
        return requests

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        of_the_batch, calls = wrap.of_the_batch, []

        def not_at_capture(indices: Any, size: int) -> Any:
            calls.append(size)
            return of_the_batch(indices, size) if len(calls) > 1 else indices

        return {
            "nothing is cut": replaced(wrap, "of_the_batch", lambda indices, size: indices),
            "the last ones are kept": replaced(wrap, "of_the_batch", lambda indices, size: indices[-size:]),
            "one is missing": replaced(wrap, "of_the_batch", lambda indices, size: indices[1 : size + 1]),
            "graphs read a copy": replaced(wrap, "of_the_batch", lambda indices, size: indices[:size].clone()),
            "nothing is cut at capture": replaced(wrap, "of_the_batch", not_at_capture),
        }
