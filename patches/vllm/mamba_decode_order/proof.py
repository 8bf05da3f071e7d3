"""Proof of vllm.mamba-decode-order: which tokens the state of a request holds that decodes without drafts beside a prompt.

Real: the scheduler, with its table of drafts by batch size; what Model Runner V2 makes of a step's requests, and the builder of
Mamba2's metadata. Emulated: the rest of the runner, and the layers (see `lab.vllm.states`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.padding import caching
from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, Engine
from attnfix.patches.lab.vllm.states import Runner

_RUNNER, _SCHEDULER = "vllm.v1.worker.gpu.model_runner", "vllm.v1.core.sched.scheduler"
_BUILDER = "vllm.v1.attention.backends.mamba2_attn"
#: Of a step, at most; of the answers that go on; steps
_TOKENS, _ANSWER, _STEPS = 32, 120, 40


class Proof(proof.Proof):
    modules = (_RUNNER, _SCHEDULER, _BUILDER)
    may_lack = (_RUNNER, _BUILDER)
    measure = "share of states and outputs that are of other tokens"

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def prepare(self) -> None:
        if not hasattr(getattr(self.engine.get(_RUNNER), "GPUModelRunner", None), "gather_batch_req_state"):
            raise NoSuchPath("Model Runner V2 does not sort a batch by drafts")

    def scenario(self, seed: int) -> Iterator[Observation]:
        """Prompts of one token more than there are drafts: whole ones, and the rest of one that was cut."""
        drafts = random.Random(seed).choice((1, 2, 3))
        short = (1 + drafts, _TOKENS - 1 - drafts)  # of the second, this is left beside two verifications
        for mode in ("none", "align"):
            yield self._serve(seed, drafts, short, mode, table=True)
            yield self._serve(seed, drafts, short, mode, refused=0.5)

    def control(self, seed: int) -> Observation:
        """Other prompts; and those of that length, where all that decode have drafts."""
        drafts = random.Random(seed).choice((1, 2, 3))
        others = tuple({2, 3, 4, 5, 9, 17} - {1 + drafts})  # a step has room for all of it
        return combine(
            self._serve(seed, drafts, others, "align", table=True),
            self._serve(seed, drafts, others, "none", refused=0.5),
            self._serve(seed, drafts, (1 + drafts, _TOKENS - 1 - drafts), "none"),
        )

    def _serve(
        self, seed: int, drafts: int, prompts: Sequence[int], mode: str, *, table: bool = False, refused: float = 0.0
    ) -> Observation:
        """Two long answers, and prompts beside them. table: whether a step of three requests or more drafts nothing.

        The scheduler is a step ahead, but where a grammar refuses drafts: until it answers, each of them has its row.
        """
        spoken = {"num_speculative_tokens_per_batch_size": [(1, 2, drafts), (3, 16, 0)]} if table else {}
        ahead = not refused
        with Engine(
            NEMOTRON_H, drafts=drafts, max_tokens=_TOKENS, speculative=spoken, ahead=ahead,
            scheduler={"async_scheduling": ahead}, **caching(mode),
        ) as engine:  # fmt: skip
            runner = Runner(engine, seed, v2=True, refused=refused)
            for _ in range(2):
                runner.ask(9, _ANSWER)
            for at in range(_STEPS):
                if at % 4 in (1, 2):
                    runner.ask(runner.draw.choice(prompts), 1)
                runner.step()
            return runner.observe()

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real, moves = wrap.decodes_first, wrap.reordered
        once = iter([real])

        return {
            "nothing is moved": replaced(wrap, "decodes_first", lambda *args: None),
            "the first batch alone": replaced(wrap, "decodes_first", lambda *args: next(once, lambda *_: None)(*args)),
            "names are moved alone": replaced(
                wrap, "reordered", lambda batch, order: batch._replace(req_ids=[batch.req_ids[row] for row in order])
            ),
            "names are left": replaced(
                wrap, "reordered", lambda batch, order: moves(batch, order)._replace(req_ids=batch.req_ids)
            ),
        }
