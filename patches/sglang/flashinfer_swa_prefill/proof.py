"""Proof of sglang.flashinfer-swa-prefill: prefill of a model with window layers and full ones, judged layer by layer.

What is real and what is emulated stands in `patches/lab/sglang/flashinfer_server.py`.
"""

from __future__ import annotations

import dis
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import Observation, code_of, combine, replaced
from attnfix.patches.lab.sglang import flashinfer_server
from attnfix.patches.lab.sglang.flashinfer_server import BACKEND, WINDOW, Server

#: Cached and new tokens of the requests of a batch
NOTHING_CACHED = [0, 0, 0], [20, 5, WINDOW + 1]
CACHED = [30, 3, 0], [4, 2, 1]
BOTH = [0, 25, 6, 12], [17, 12, 1, 10]
WITHIN = [0, 0, 0], [WINDOW + 1, 4, 1]


class Proof(proof.Proof):
    modules = flashinfer_server.MODULES
    may_lack = flashinfer_server.MAY_LACK

    def prepare(self) -> None:
        flashinfer_server.use(self.engine[BACKEND])

    def scenario(self, seed: int) -> Observation:
        """Prompts longer than the window, and short ones behind a cached prefix; as released, of a multimodal model, and in
        deterministic mode."""
        return combine(*(seen for modes in ({}, {"is_multimodal": True}, {"enable_deterministic": True})
                         for seen in self._prefills(seed, modes)))  # fmt: skip

    def control(self, seed: int) -> Observation:
        """Prompts within the window, and decode steps."""
        server = self._server(seed)
        return combine(server.prefill(*WITHIN), server.decode([30, 3, WINDOW, 12]), server.prefill(*WITHIN))

    def _server(self, seed: int, **modes: bool) -> Server:
        import torch

        return Server(self.engine, torch.Generator().manual_seed(seed), **modes)

    def _prefills(self, seed: int, modes: dict[str, bool]) -> list[Observation]:
        server = self._server(seed, **modes)
        seen = [server.prefill(*NOTHING_CACHED), server.prefill(*CACHED), server.prefill(*BOTH, mode="MIXED")]
        server = self._server(seed + 1, **modes)  # one prompt in chunks
        return seen + [server.prefill([at], [n], fill=False) for at, n in ((0, 12), (12, 20), (32, 5))]

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        ragged, updater = wrap.ragged_misses, self.engine[BACKEND].FlashInferIndicesUpdaterPrefill
        found: dict[str, Any] = {
            "the correction does nothing": replaced(wrap, "PLAIN", frozenset()),
            "long prompts are missed where nothing is cached": replaced(
                wrap, "ragged_misses", lambda learnt, cached, new: any(cached) and ragged(learnt, cached, new)
            ),
            "only the first request is looked at": replaced(
                wrap, "ragged_misses", lambda learnt, cached, new: ragged(learnt, cached[1:2], new[1:2])
            ),
            "the ragged mode stays": replaced(wrap, "switch", lambda backend: "another_switch"),
        }
        plan = code_of(updater.call_begin_forward)
        if "window_left" not in plan.co_varnames[: plan.co_argcount]:  # up to 0.5.15.post1
            found["the window is not planned"] = replaced(wrap, "with_window", lambda plan, window: plan)
            found["batches of paged-only mode are missed"] = replaced(wrap, "paged_misses", lambda *batch: False)
        if not _reads(code_of(updater.update_sliding_window), "extend_prefix_lens_cpu"):  # up to 0.5.20
            found["short prompts with a prefix are missed"] = replaced(
                wrap, "ragged_misses", lambda learnt, cached, new: ragged(learnt, [], new)
            )
        return found


def _reads(code: Any, name: str) -> bool:
    return any(one.opname.startswith("LOAD_FAST") and one.argval == name for one in dis.get_instructions(code))
