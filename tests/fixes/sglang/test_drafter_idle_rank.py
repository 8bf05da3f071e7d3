"""sglang.drafter-idle-rank without an engine: which batches of an idle rank are planned, and that others are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.drafter_idle_rank.fix import FIX
from tests.support import one_call


class Backend:
    def __init__(self):
        self.planned = []

    def init_forward_metadata(self, forward_batch):
        if forward_batch.fails:
            raise RuntimeError("no such length")
        self.planned.append(forward_batch.batch_size)


def draft_extend_for_decode(self, batch, batch_result):
    for runner in self.draft_runner_list:
        for size in batch_result:
            runner.attn_backend.init_forward_metadata(SimpleNamespace(batch_size=size, fails=size == batch.fails))


def step(idle, sizes, fails=None, shared=False):
    backends = [Backend()] * 2 if shared else [Backend(), Backend()]
    worker = SimpleNamespace(draft_runner_list=[SimpleNamespace(attn_backend=one) for one in backends])
    batch, state = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: idle), fails=fails), FixState(FIX)
    target = one_call.target_of(FIX, "_draft_extend_for_decode")
    try:
        one_call.run(target, draft_extend_for_decode, state, worker, batch, sizes)
    finally:
        assert all("init_forward_metadata" not in vars(backend) for backend in backends)
    return [backend.planned for backend in backends], state.counters.corrections


@pytest.mark.parametrize(
    "idle, sizes, planned, corrections",
    [(True, (0, 2), [2], 1), (True, (0, 0), [], 1), (True, (2,), [2], 0), (False, (0, 2), [0, 2], 0)],
)
def test_empty_batches_of_an_idle_rank_are_not_planned(idle, sizes, planned, corrections):
    assert step(idle, sizes) == ([planned, planned], corrections)


def test_layers_may_share_a_backend():
    assert step(True, (0, 3), shared=True) == ([[3, 3], [3, 3]], 1)


def test_an_error_of_the_engine_stays_and_its_backends_are_as_before():
    with pytest.raises(RuntimeError, match="no such length"):
        step(True, (0, 4), fails=4)
