"""Proof of sglang.mamba-track-boundary: conversations of a hybrid model, whose prompts arrive while others decode.

What a request begins with is compared with what it continues: the tokens that the cached state has seen, and those of the
prefix that the radix cache gives it. Real and played parts: `lab.sglang.tracked_states`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, replaced
from attnfix.patches.lab.sglang import tracked_states
from attnfix.patches.lab.sglang.engine import module
from attnfix.patches.lab.sglang.tracked_states import INTERVAL, Server

_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other
_RESULTS = "sglang.srt.managers.scheduler_components.batch_result_processor"
_TURNS = 150
_BEFORE, _AROUND = 2, 4  # decode steps before the boundary; turns of which every order is played
_ENDS, _LATER = (0, 1, 2, 9), (2, 3, 9)
Continued = list[tuple[int, bool]]


class Proof(proof.Proof):
    modules = (_QUANTIZATION, _RESULTS)
    may_lack = (_RESULTS,)
    kernel = "none"
    flags: tuple[str, ...] = ()
    around = {"`--mamba-track-interval` above the context length": {"flags": ("--mamba-track-interval", "1024")}}
    measure = "share of requests that continue from a state of another position"

    def prepare(self) -> None:
        if _RESULTS not in self.engine or not hasattr(
            self.engine[_RESULTS].SchedulerBatchResultProcessor, "_mamba_check_track_boundary"
        ):
            raise NoSuchPath("boundaries of tracked states are not decided from the length that is committed")
        self.served = tracked_states.serve(*self.flags)

    def scenario(self, seed: int) -> Iterator[Observation]:
        """Every order of prefills and decode steps around a boundary, in both ways to keep two buffers; and a busy server."""
        yield from self._orders(seed)
        yield self._busy(seed)
        with tracked_states.lazily(self.served):
            yield from self._orders(seed, lazy=True)

    def control(self, seed: int) -> Observation:
        """Without overlap, where no step is ahead; extra_buffer_lazy, where no prefill comes between; verified drafts."""
        with tracked_states.lazily(self.served):
            quiet = _told(self._conversation(seed, (), _LATER, overlap=True, lazy=True))
        return combine(*self._orders(seed, overlap=False), self._busy(seed, overlap=False), quiet, self._drafts())

    def _orders(self, seed: int, overlap: bool = True, lazy: bool = False) -> Iterator[Observation]:
        """Four requests cross a boundary together, and end before it, at it and behind it."""
        plays = itertools.product((False, True), repeat=_AROUND)
        return (_told(self._conversation(seed, order, _ENDS, overlap, lazy)) for order in plays)

    def _conversation(self, seed: int, order: Any, ends: Any, overlap: bool, lazy: bool) -> Continued:
        """`order`: at which turns around the boundary a prompt of others is prefilled; `ends`: tokens behind it.

        With extra_buffer_lazy it is the second boundary of these requests, as a slot goes from one to the next.
        """
        draw, server = random.Random(seed), Server(self.served, overlap, lazy)
        text = lambda tokens: [draw.randrange(64) for _ in range(tokens)]  # noqa: E731
        earlier = INTERVAL if lazy else 0
        for end in ends:
            server.arrive(text(INTERVAL - _BEFORE), text(earlier + _BEFORE + end))
        for _ in range(1 + earlier):
            server.step()
        begun = list(server.texts.values())
        for others in order:
            if others:
                server.arrive(text(3), text(1))
            server.step(prefill=others)
        while server.step():
            pass
        for said in begun:
            server.arrive(said + text(3), text(2))
        while server.step():
            pass
        return server.continued

    def _busy(self, seed: int, overlap: bool = True) -> Observation:
        """Turns of conversations that arrive at random; each request that ends has a follow-up.

        None ends where the step in flight writes the next state: what is kept then is the matter of another bug.
        """
        draw, server = random.Random(seed), Server(self.served, overlap)
        text = lambda least, most: [draw.randrange(64) for _ in range(draw.randrange(least, most))]  # noqa: E731

        def arrive(prompt: list[int]) -> None:
            answer = text(3, 60)
            server.arrive(prompt, answer + text(2, 3) if (len(prompt) + len(answer)) % INTERVAL < 2 else answer)

        for _ in range(6):
            arrive(text(20, 60))
        followed = 0
        for _ in range(_TURNS):
            server.step(prefill=draw.random() < 0.3)
            for ended in server.finished[followed:]:
                said = server.texts[ended.rid]
                arrive((said if len(said) < 300 else []) + text(3, 30))
            followed = len(server.finished)
        return _told(server.continued)

    def _drafts(self) -> Observation:
        """What the engine says where drafts were verified: lengths and numbers of accepted drafts around a boundary."""
        server = Server(self.served)
        algorithm = module("speculative.spec_info").SpeculativeAlgorithm.from_string("EAGLE")
        batch = module("managers.schedule_batch").ScheduleBatch(
            reqs=[], spec_algorithm=algorithm, req_to_token_pool=server.pool
        )
        result = module("managers.utils").GenerationBatchResult()
        said = []
        for done, accepted, ahead in itertools.product(range(INTERVAL - 2, INTERVAL + 3), range(3), range(2)):
            server.arrive([1] * done, [1])
            request = server.waiting.pop()
            request.output_ids.append(1)
            tracked_states.commit(request, done + ahead)
            result.num_correct_drafts_per_req_cpu = [accepted]
            said.append(server.processor._mamba_check_track_boundary(request, batch, result, 0))
        crossed = [at for at in said if at[0]]
        return Observation(float(not crossed or any(length != INTERVAL for _, length in crossed)), repr(said))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real, first = wrap.processed, []

        def first_alone(req: Any) -> int:
            first.append(req)
            return real(req) if req is first[0] else int(req.kv_committed_len)

        ways = {
            "the correction does nothing": {"processed": lambda req: req.kv_committed_len},
            "the step before is asked": {"processed": lambda req: real(req) - 1},
            "one request alone is corrected": {"processed": first_alone},
            "extra_buffer_lazy is taken for extra_buffer": {"_lazy": lambda batch: False},
            "extra_buffer is taken for extra_buffer_lazy": {"_lazy": lambda batch: True},
        }
        return {name: replaced(wrap, *way) for name, ways in ways.items() for way in ways.items()}


def _told(play: Continued) -> Observation:
    """The share of wrong states."""
    if not play:
        raise AssertionError("no request began with a cached state")
    return Observation(sum(not right for _, right in play) / len(play), repr(play))
