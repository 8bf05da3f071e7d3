"""Proof of sglang.mamba-freed-verify: requests of a hybrid model end after their next step was prepared, and are verified.

What continues their conversation must begin with the state that was cached, and a request that goes on writes into a buffer of
its own. Spared: verifications of requests that all go on. Real and played parts: `lab.sglang.tracked_states`; played, too, are
the grammar that makes the scheduler end requests first, and the write of the states behind the verification.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.sglang import tracked_states
from attnfix.patches.lab.sglang.tracked_states import INTERVAL

from . import wrap

_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other
_SCHEDULE = "sglang.srt.managers.schedule_batch"


class Case(NamedTuple):
    """prompts: their tokens; ends: those that end before the verification, by number; intervals: those that have passed then.

    The first buffer is kept after an even number of states, that of a prompt's chunks included.
    """

    prompts: tuple[int, ...]
    ends: tuple[int, ...] = (0,)
    intervals: int = 1


class Proof(Cases):
    modules = (_SCHEDULE, _QUANTIZATION)
    kernel = "none"
    needs = "set_mamba_track_indices_from_reqs"
    absent = "a request that ends keeps the number of its buffer, or has no buffer"
    measure = "share of requests whose state is not theirs, or 1 where the server ends"
    bug = (
        Case((12,)),
        Case((12, 20)),
        Case((10, 17, 14), ends=(0, 2)),
        Case((18, 25, 30, 22), ends=(3,), intervals=2),
    )
    spared = (Case((12, 20), ends=()), Case((18, 25, 30), ends=(), intervals=2))
    broken = {
        "the correction does nothing": (wrap.point_at_nobody, lambda real, slots, row: None),
        "the row before is meant": (wrap.point_at_nobody, lambda real, slots, row: real(slots, row - 1)),
        "all rows are meant": (wrap.point_at_nobody, lambda real, slots, row: slots.fill_(0)),
    }

    def prepare(self) -> None:
        super().prepare()
        self.served = tracked_states.serve()

    def run(self, case: Case, seed: int) -> Observation:
        draw, server = random.Random(seed), _Server(self.served)
        text = lambda tokens: [draw.randrange(64) for _ in range(tokens)]  # noqa: E731
        decoded = case.intervals * INTERVAL + 6
        for number, prompt in enumerate(case.prompts):
            server.arrive(text(prompt), text(decoded if number in case.ends else decoded + 3 * INTERVAL))
        said = [list(server.texts[f"r{number}"]) for number in case.ends]
        for _ in range(decoded):
            server.step()
        try:
            own = server.verify(self.engine[_SCHEDULE].set_mamba_track_indices_from_reqs)
        except TypeError as error:
            return Observation(1.0, str(error))
        assert len(server.finished) == len(case.ends)
        for one in said:
            server.arrive(one + text(3), text(2))
        server.step()
        right = [*own, *(one for _, one in server.continued)]
        return Observation(right.count(False) / len(right), repr((own, server.continued)))


class _Server(tracked_states.Server):
    def verify(self, set_indices: Any) -> list[bool]:
        """A verification that is prepared, and launched after the last result was processed. Each request crosses an interval.

        Returns whether those that go on have the slot that is theirs.
        """
        with tracked_states.unpinned():
            batch = self._decode()
            self._process(*self.queue.popleft())
            set_indices(batch)
        slots = batch.mamba_track_indices.tolist()
        for number, slot in enumerate(slots):
            if slot >= 0:
                self._write(slot, (number, INTERVAL))
        rows = self.pool.req_index_to_mamba_ping_pong_track_buffer_mapping.tolist()
        running = [(one, slot) for one, slot in zip(batch.reqs, slots, strict=True) if not one.finished()]
        return [slot == rows[_of(one).req_pool_idx][_of(one).mamba_next_track_idx] for one, slot in running]


def _of(request: Any) -> Any:
    return request if hasattr(request, "mamba_next_track_idx") else request.kv
