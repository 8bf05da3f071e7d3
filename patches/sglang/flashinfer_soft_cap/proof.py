"""Proof of sglang.flashinfer-soft-cap: prefill and decode of a model whose scores have a soft cap, judged layer by layer.

What is real and what is emulated stands in `patches/lab/sglang/flashinfer_server.py`. With window layers, prompts are
within the window and nothing is cached: the rest of them is the matter of sglang.flashinfer-swa-prefill.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import Observation, combine, replaced
from attnfix.patches.lab.sglang import flashinfer_server
from attnfix.patches.lab.sglang.flashinfer_server import BACKEND, WINDOW, Server

_CAP = 2.0  # the queries of the proof have scores of about 4


class Proof(proof.Proof):
    modules = flashinfer_server.MODULES
    may_lack = flashinfer_server.MAY_LACK

    def prepare(self) -> None:
        flashinfer_server.use(self.engine[BACKEND])

    def scenario(self, seed: int) -> Observation:
        """A model of full layers, and one with window layers, too; decode with and without a CUDA graph."""
        return self._run(seed, _CAP)

    def control(self, seed: int) -> Observation:
        """The same models without a cap."""
        return self._run(seed, 0.0)

    def _run(self, seed: int, cap: float) -> Observation:
        import torch

        full, sliding = (
            Server(self.engine, torch.Generator().manual_seed(seed), windows=windows, soft_cap=cap) for windows in (False, True)
        )
        fresh = [0, 0, 0], [WINDOW + 1, 4, 1]
        seen = [full.prefill(*fresh), full.prefill([30, 3, 0], [4, 2, 5]), sliding.prefill(*fresh)]
        for server in (full, sliding):
            seen += [server.decode([30, 3, WINDOW, 12], graph=graph) for graph in (False, True)]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.planned
        return {
            "the correction does nothing": replaced(wrap, "takes_a_cap", lambda wrapper: False),
            "a prefill's cached part is missed": replaced(wrap, "planned", lambda call, wrappers: real(call, wrappers[:1])),
            "a prefill's new part is missed": replaced(wrap, "planned", lambda call, wrappers: real(call, wrappers[-1:])
                                                       if len(wrappers) > 1 else real(call, wrappers)),
            "decode is missed": replaced(wrap, "planned", lambda call, wrappers: real(call, wrappers[1:] and wrappers)),
        }  # fmt: skip
