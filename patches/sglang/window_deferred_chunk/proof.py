"""Proof of sglang.window-deferred-chunk: other requests leave window layers too few slots for the chunk of a prompt.

The scheduler caches a prompt in each turn, as all servers do up to 0.5.11, and prefill servers up to 0.5.12.post1. Spared:
window pools in which all chunks fit, and prompts of one chunk. Real and played parts: `lab.sglang.window_cache`.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, code_of
from attnfix.patches.lab.sglang.window_cache import Server

from . import wrap

_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other
_POLICY, _SCHEDULER = "sglang.srt.managers.schedule_policy", "sglang.srt.managers.scheduler"
_PREFILL = "sglang.srt.disaggregation.prefill"
#: What a scheduler asks that caches a prompt behind a chunk alone; from 0.5.13 on `fill_ids` is not what is cached
_FLAG = "_chunked_req_scheduled_last_iter"
_WINDOW, _TURNS = 8, 400


class Case(NamedTuple):
    """`ahead` requests decode while a prompt of `tokens` is read; `near`: slots of window layers."""

    near: int
    ahead: int = 4
    tokens: int = 64
    chunk: int = 16
    page: int = 1
    overlap: bool = True


class Proof(Cases):
    modules = (_QUANTIZATION, _POLICY, _SCHEDULER, _PREFILL)
    needs = f"{_POLICY}:PrefillAdder.add_chunked_req: rem_swa_tokens"
    absent = "no chunk is put off for the slots of window layers"
    kernel = "none"
    measure = "share of requests that read KV of others, infinite where a step raises"
    bug = (
        Case(48, chunk=8), Case(48, chunk=8, page=4), Case(48), Case(48, page=4), Case(64, page=4), Case(40),
        Case(48, chunk=8, overlap=False), Case(48, page=4, overlap=False),
    )  # fmt: skip
    spared = (Case(200), Case(200, page=4, overlap=False), Case(200, tokens=12))
    broken = {
        "the correction does nothing": (wrap.computed, lambda real, req: req.fill_ids),
        "a token more is cached": (wrap.computed, lambda real, req: req.fill_ids[: len(req.prefix_indices) + 4]),
    }

    def prepare(self) -> None:
        super().prepare()
        cut = code_of(self.engine[_POLICY].PrefillAdder.add_chunked_req).co_names
        if "fill_ids" not in cut or all(_FLAG in code_of(turn).co_names for turn in self._turns()):
            raise NoSuchPath("a prompt whose chunk was put off is not cached")

    def _turns(self) -> tuple[Any, ...]:
        """What begins a turn, on a prefill server and on others."""
        prefills, others = self.engine[_PREFILL].SchedulerDisaggregationPrefillMixin, self.engine[_SCHEDULER].Scheduler
        return prefills.process_prefill_chunk, others.get_next_batch_to_run

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        text = lambda tokens: [draw.randrange(1, 64) for _ in range(tokens)]  # noqa: E731
        server = Server(case.page, _WINDOW, (256, case.near), case.chunk, case.overlap)
        try:
            for _ in range(case.ahead):
                server.arrive(text(6), text(40))
                server.step()
                server.step()
            prompt = text(case.tokens)
            server.arrive(prompt, text(3))
            for turn in range(_TURNS):
                if turn == 60:
                    server.arrive(prompt + text(4), text(3))
                if not server.step() and turn > 60:
                    break
            else:
                return Observation(1.0, "the prompt is never read")
            server.tree.sanity_check()
        except (AssertionError, IndexError, RuntimeError, ValueError) as error:
            return Observation(float("inf"), str(error))
        seen = (server.batches, server.full.tolist(), server.near.tolist())
        wrong = 1.0 if server.lost() or server.chunked else len(server.wrong) / len(server.texts)
        return Observation(wrong, hashlib.sha256(repr(seen).encode()).hexdigest())
