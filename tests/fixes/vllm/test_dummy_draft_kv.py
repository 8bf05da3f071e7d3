"""vllm.dummy-draft-kv without an engine: what is changed while a dummy batch drafts, and that it is put back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dummy_draft_kv.fix import FIX
from tests.support import one_call

AUTO, MULTI = FIX.targets
STEPS = 3


def tables(groups=True, blocks=5):
    numbers = torch.zeros(2, 4, dtype=torch.int32)
    numbers[0, 1] = blocks
    rows = [SimpleNamespace(gpu=torch.arange(1, 41, dtype=torch.int32).view(4, 10).clone()) for _ in range(2)]
    made = SimpleNamespace(num_blocks=SimpleNamespace(np=numbers.numpy()), block_tables=rows)
    if groups:
        made.slot_mapping_enabled = torch.tensor([True, False])
    return made


class Speculator(SimpleNamespace):
    """The engine's: says what memory it sees."""

    def propose(self, input_batch, temperature, dummy_run=False, skip_attn_for_dummy_run=False):
        if self.fails:
            raise ValueError("the engine's own")
        held = self.block_tables
        self.saw = (
            [table.gpu.clone() for table in held.block_tables],
            getattr(held, "slot_mapping_enabled", torch.ones(1)).clone(),
        )
        return "drafts"


def propose(held, target=AUTO, requests=2, steps=STEPS, fails=False, **how):
    """(speculator, corrections)"""
    instance = Speculator(block_tables=held, num_speculative_steps=steps, fails=fails)
    state = FixState(FIX)
    state.fired = True
    before = memory(held)
    try:
        assert (
            one_call.run(target, Speculator.propose, state, instance, SimpleNamespace(num_reqs=requests), None, **how)
            == "drafts"
        )
    finally:
        assert memory(held) == before, "what was changed is as it was"
    return instance, state.counters.corrections


def memory(held):
    enabled = getattr(held, "slot_mapping_enabled", None)
    return [table.gpu.tolist() for table in held.block_tables], enabled is not None and enabled.tolist()


@pytest.mark.parametrize("target", [AUTO, MULTI])
def test_a_dummy_batch_has_no_slots(target):
    instance, corrections = propose(tables(), target, dummy_run=True)
    rows, enabled = instance.saw
    assert (enabled.tolist(), corrections) == ([False, False], 1)
    assert all(bool(table.all()) for table in rows)


@pytest.mark.parametrize("requests", [1, 2, 4])
def test_where_the_kernel_cannot_be_told_rows_begin_with_the_null_block(requests):
    instance, corrections = propose(tables(groups=False), requests=requests, dummy_run=True)
    for table in instance.saw[0]:
        assert not table[:requests, : STEPS + 1].any()
        assert table[:requests, STEPS + 1 :].all() and table[requests:].all()
    assert corrections == 1


@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize(
    "how",
    [dict(), dict(dummy_run=False), dict(dummy_run=True, skip_attn_for_dummy_run=True), dict(dummy_run=True, steps=1)],
    ids=["requests", "requests, said", "memory is measured", "one draft"],
)
def test_other_calls_are_left_alone(groups, how):
    instance, corrections = propose(tables(groups), **how)
    assert corrections == 0
    assert instance.saw[0][0].all() and instance.saw[1].any()


def test_the_only_draft_of_several_modules_has_slots_too():
    assert propose(tables(), MULTI, steps=1, dummy_run=True)[1] == 1


@pytest.mark.parametrize("target", [AUTO, MULTI])
def test_before_the_first_request_nothing_is_changed(target):
    assert propose(tables(blocks=0), target, dummy_run=True)[1] == 0


@pytest.mark.parametrize("groups", [True, False])
def test_all_is_put_back_where_the_engine_fails(groups):
    with pytest.raises(ValueError, match="the engine's own"):
        propose(tables(groups), fails=True, dummy_run=True)
