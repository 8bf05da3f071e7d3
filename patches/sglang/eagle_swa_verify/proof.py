"""Proof of sglang.eagle-swa-verify: chains and trees of drafted tokens, with and without a CUDA graph, judged layer by layer.

What is real and what is emulated stands in `patches/lab/sglang/flashinfer_server.py`; `EagleVerifyInput` is real, too.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, replaced
from attnfix.patches.lab.sglang import flashinfer_server
from attnfix.patches.lab.sglang.flashinfer_server import BACKEND, ROOM, VERIFY, WINDOW, Server

#: Tokens before the drafted ones; the parents of the drafted ones
LONG, SHORT = [30, 3, 17], [2, 3, 1]
CHAIN, TREE = [0, 1, 2, 3], [0, 0, 1, 2]
#: Whose mask is mostly of the text behind the window, and one that fills its graph
OTHERS = [WINDOW + 1, 40, 1, 9]


class Proof(proof.Proof):
    modules = flashinfer_server.MODULES
    may_lack = flashinfer_server.MAY_LACK

    def prepare(self) -> None:
        plans = code_of(self.engine[BACKEND].FlashInferIndicesUpdaterPrefill.update_sliding_window)
        if "num_accept_tokens" not in plans.co_consts:
            raise NoSuchPath("verification of a model with window layers ends in a TypeError when it is planned")
        self.engine[VERIFY] = self._imported(VERIFY)
        flashinfer_server.use(self.engine[BACKEND])

    def scenario(self, seed: int) -> Observation:
        """Requests longer than the window, and short ones behind them."""
        return combine(*(self._verified(seed, parents, graph) for parents in (CHAIN, TREE) for graph in (False, True)))

    def control(self, seed: int) -> Observation:
        """Decode steps, and a prefill in the same backend."""
        server = self._server(seed)
        return combine(server.decode([30, 3, WINDOW, 12]), server.prefill([0, 0, 0], [WINDOW + 1, 4, 1]))

    def _server(self, seed: int) -> Server:
        import torch

        return Server(self.engine, torch.Generator().manual_seed(seed))

    def _verified(self, seed: int, parents: list[int], graph: bool) -> Observation:
        server, topk = self._server(seed), 1 if parents is CHAIN else 2
        size = ROOM if graph else None
        return combine(*(server.verify(cached, parents, topk, size=size) for cached in (LONG, OTHERS, SHORT)))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "the correction does nothing": replaced(wrap, "FROM_THE_START", frozenset()),
            "the KV is cut as before": replaced(wrap, "WHOLE", WINDOW),
            "the window is not planned": replaced(wrap, "windowed", lambda state, wrapper, plan, *_: plan),
            "trees are taken for chains": replaced(wrap, "rows_behind", lambda *_: 0),
            "the mask of trees stays": replaced(wrap, "within", lambda mask, *_: mask),
            "graphs share a mask": replaced(wrap, "keep_its_own_mask", lambda *_: None),
            "trees are called with the layer's window": replaced(wrap, "call_with_the_planned_window", lambda *_: None),
        }
