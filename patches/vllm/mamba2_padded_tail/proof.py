"""Proof of vllm.mamba2-padded-tail: which tokens a state of Mamba2 holds behind a prompt of which one token was left.

Real: the scheduler, with the connector of the engine's own benchmark of decode servers, which brings all of a prompt but its
last token; and the builder of the layers' metadata. Emulated: the rest of the runner, and the layers (`lab.vllm.states`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.padding import caching, connector, ends_meet, fewer, leave, modes, within_a_block
from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, QWEN3_NEXT, Engine
from attnfix.patches.lab.vllm.states import Runner

_SCHEDULER = "vllm.v1.core.sched.scheduler"
_BUILDER = "vllm.v1.attention.backends.mamba_attn"
_STEPS, _WAVES = 18, 8


class Proof(proof.Proof):
    modules = (_SCHEDULER, _BUILDER)
    may_lack = (_BUILDER,)
    measure = "share of states and outputs that are of other tokens"

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def prepare(self) -> None:
        if "pad_spec_decode" not in code_of(self.engine[_SCHEDULER].Scheduler.schedule).co_varnames:
            raise NoSuchPath("the last token of a prompt is not padded")

    def scenario(self, seed: int) -> Iterator[Observation]:
        """Requests that arrive one by one, and two at a time, with all but one token of their prompts; and where others end,
        with the scheduler a step ahead."""
        several = random.Random(seed).choice((2, 3))
        ways = [("none", 1), ("none", several), *((mode, several) for mode in modes())]
        yield from (self._serve(seed, NEMOTRON_H, drafts, mode, brought=True) for mode, drafts in ways)
        for mode in ("none", "align"):  # in mode "all" stock ends the server
            with Engine(
                NEMOTRON_H, drafts=several, ahead=True, max_tokens=128, context=64, **caching(mode), **connector()
            ) as engine:
                yield ends_meet(Runner(engine, seed), _WAVES, shortest=2)  # one token alone is another bug

    def control(self, seed: int) -> Observation:
        """Prompts that are computed here: in one step, in chunks, and in chunks of which the last is one token. And a model
        with Gated DeltaNet, whose builder takes a padded prompt for a decode."""
        drafts = random.Random(seed).choice((1, 2, 3))
        here = [self._serve(seed, NEMOTRON_H, drafts, mode, brought=False) for mode in ("none", *modes())]
        ways = ("none", int), ("align", within_a_block)
        return combine(*here, *(self._serve(seed, QWEN3_NEXT, drafts, mode, True, length) for mode, length in ways))

    def _serve(self, seed: int, model: dict, drafts: int, mode: str, brought: bool, length: Any = int) -> Observation:
        with Engine(model, drafts=drafts, max_tokens=32, **caching(mode), **(connector() if brought else {})) as engine:
            runner = Runner(engine, seed)
            draw = runner.draw.randrange
            # Chunks end at multiples of what a step has left; 33 is one more than that, where nobody decodes
            prompts = [(draw(2, 30), 33), (draw(2, 60),), (), (draw(2, 30), 40 + draw(3)), (), (draw(2, 90),)]
            if mode == "all":  # a layer ends the server where one token of a prompt is left and nobody has drafts
                runner.ask(1, _STEPS * (1 + drafts))
                runner.step()
            for at in range(_STEPS):
                for prompt in prompts[at] if at < len(prompts) else ():
                    runner.ask(length(prompt), 4 + draw(10))
                runner.step()
            return runner.observe()

    def sabotages(self) -> dict[str, Any]:
        from attnfix.patches.vllm.shared import unpadded

        from . import wrap

        once = iter([unpadded.unpadded])

        return {
            "prompts are padded": replaced(unpadded, "unpadded", lambda scheduler: nullcontext()),
            "the first request alone is not padded": replaced(
                unpadded, "unpadded", lambda scheduler: next(once, lambda _: nullcontext())(scheduler)
            ),
            "the table stays": replaced(unpadded, "unpadded", partial(leave, unpadded.unpadded)),
            "a table of fewer drafts": replaced(unpadded, "unpadded", partial(fewer, unpadded.unpadded)),
            "whoever runs has drafts": replaced(wrap, "verifies", lambda scheduler: bool(scheduler.running)),
            "Mamba2 is not known": replaced(wrap, "kinds_of_states", lambda scheduler: frozenset()),
        }
