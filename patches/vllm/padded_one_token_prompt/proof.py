"""Proof of vllm.padded-one-token-prompt: which tokens the state of a request holds whose prompt is one token.

Real: the scheduler, and the builders of the metadata of Mamba2 and Gated DeltaNet. Emulated: the rest of the runner, and the
layers (see `lab.vllm.states`): a block that a request gets holds what its last owner left.
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
from attnfix.patches.lab.vllm.padding import TIGHT, caching, connector, ends_meet, fewer, leave, modes, within_a_block
from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, QWEN3_NEXT, Engine
from attnfix.patches.lab.vllm.states import Runner

_SCHEDULER = "vllm.v1.core.sched.scheduler"
_BUILDERS = "vllm.v1.attention.backends.mamba_attn", "vllm.v1.attention.backends.gdn_attn"
_STEPS, _LONG, _WAVES = 18, 60, 8
#: Beside a request that decodes all the time: one token alone, two in one step, and with a prompt that takes some chunks
_ONE = {3: (1,), 6: (1, 1), 9: (1, 70), 10: (1,)}


class Proof(proof.Proof):
    modules = (_SCHEDULER, *_BUILDERS)
    may_lack = _BUILDERS
    measure = "share of states and outputs that are of other tokens"

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def prepare(self) -> None:
        if "pad_spec_decode" not in code_of(self.engine[_SCHEDULER].Scheduler.schedule).co_varnames:
            raise NoSuchPath("the last token of a prompt is not padded")

    def scenario(self, seed: int) -> Iterator[Observation]:
        """One token: as a prefill, Mamba2 takes in the padding; as a verification, Gated DeltaNet begins elsewhere. And what
        becomes of the others where the scheduler is a step ahead."""
        drafts = random.Random(seed).choice((1, 2, 3))
        ways = [(QWEN3_NEXT, "none"), (QWEN3_NEXT, "align"), *((NEMOTRON_H, mode) for mode in ("none", *modes()))]
        yield from (self._serve(seed, model, drafts, _ONE, mode) for model, mode in ways)
        yield from (self._ahead(seed, model, drafts, mode) for model, mode in ways if mode != "all")
        yield self._ahead(seed, NEMOTRON_H, drafts, "align", **TIGHT)
        if "all" in modes():
            yield self._ahead(seed, NEMOTRON_H, drafts, "all", **(connector() if self._verifies_tails() else {}))

    def _verifies_tails(self) -> bool:
        """Whether a padded prompt of which one token is left is a verification to Mamba2. Else, in mode "all", a step with
        nothing beside it ends a stock server."""
        builder = self.engine[_BUILDERS[0]].BaseMambaAttentionMetadataBuilder
        return "num_decode_draft_tokens_cpu" in code_of(builder._compute_common_metadata).co_varnames

    def control(self, seed: int) -> Observation:
        """Two tokens and more, and chunks of which the last is one; and one token that is left of a prompt, which is padded as
        ever."""
        draw = random.Random(seed)
        prompts = {at: (draw.randrange(2, 6), draw.randrange(2, 70)) for at in (2, 3, 7)} | {5: (31,), 9: (63,)}
        here, brought = draw.choice((1, 2, 3)), draw.choice((1, 2, 3))
        seen = [self._serve(seed, NEMOTRON_H, here, prompts, mode) for mode in ("none", *modes())]
        shorter = {at: tuple(map(within_a_block, lengths)) for at, lengths in prompts.items()}
        ways = ("none", prompts), ("align", shorter)
        seen += [self._serve(seed, QWEN3_NEXT, brought, asked, mode, **connector()) for mode, asked in ways]
        return combine(*seen)

    def _serve(self, seed: int, model: dict, drafts: int, prompts: dict, mode: str, **more: Any) -> Observation:
        with Engine(model, drafts=drafts, max_tokens=32, **caching(mode), **more) as engine:
            runner = Runner(engine, seed)
            runner.ask(20, _LONG * (1 + drafts))
            for at in range(_STEPS):
                for prompt in prompts.get(at, ()):
                    runner.ask(prompt, 4 + runner.draw.randrange(10))
                runner.step()
            return runner.observe()

    def _ahead(self, seed: int, model: dict, drafts: int, mode: str, **more: Any) -> Observation:
        """The scheduler a step ahead."""
        with Engine(model, drafts=drafts, ahead=True, max_tokens=128, context=64, **caching(mode), **more) as engine:
            return ends_meet(Runner(engine, seed), _WAVES)

    def sabotages(self) -> dict[str, Any]:
        from attnfix.patches.vllm.shared import unpadded

        from . import wrap

        once = iter([unpadded.unpadded])
        return {
            "prompts are padded": replaced(unpadded, "unpadded", lambda scheduler: nullcontext()),
            "the first request alone is not padded": replaced(
                unpadded, "unpadded", lambda scheduler: next(once, lambda _: nullcontext())(scheduler)
            ),
            "a request is forgotten before its step": replaced(wrap, "one_may_begin", lambda scheduler: False),
            "the table stays": replaced(unpadded, "unpadded", partial(leave, unpadded.unpadded)),
            "a table of fewer drafts": replaced(unpadded, "unpadded", partial(fewer, unpadded.unpadded)),
            "whoever runs has drafts": replaced(wrap, "verifies", lambda scheduler: bool(scheduler.running)),
            "no layer has a state": replaced(wrap, "kinds_of_states", lambda scheduler: frozenset()),
        }
