"""vllm.partial-hit-assert without an engine: a manager that finds whole blocks alone, of the length of a hash and longer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.partial_hit_assert.fix import FIX
from tests.support import one_call


def init(self, allowed, window, connector=None):
    managers = [
        SimpleNamespace(supports_fine_grained_hash_lookup=True, block_size=48),
        SimpleNamespace(supports_fine_grained_hash_lookup=False, block_size=window),
    ]
    coordinator = SimpleNamespace(hash_block_size=16, single_type_managers=managers)
    if allowed is not None:
        coordinator.enable_partial_hash_hits = allowed
    self.kv_cache_manager, self.mamba_partial_cache_hit = SimpleNamespace(coordinator=coordinator), True
    self.connector = connector


@pytest.mark.parametrize(
    "allowed, window, corrected",
    [
        (True, 48, True),
        (True, 16, False),
        (False, 48, False),
        (None, 48, False),  # layers of one kind
    ],
)
def test_parts_of_blocks_are_asked_for_where_every_manager_finds_them(allowed, window, corrected):
    scheduler, state = SimpleNamespace(), FixState(FIX)
    one_call.run(one_call.target_of(FIX, "__init__"), init, state, scheduler, allowed, window)
    assert state.counters.corrections == corrected and scheduler.mamba_partial_cache_hit is not corrected
    if allowed is not None:
        assert scheduler.kv_cache_manager.coordinator.enable_partial_hash_hits == (allowed and not corrected)


def store(partial):
    """Mooncake's: a worker of it looks up."""
    return SimpleNamespace(connector_scheduler=SimpleNamespace(enable_partial_hash_hits=partial))


def test_a_server_whose_store_asks_for_parts_by_itself_ends_as_ever():
    for connector in store(True), SimpleNamespace(_connectors=[SimpleNamespace(), store(True)]):
        scheduler, state = SimpleNamespace(), FixState(FIX)
        one_call.run(one_call.target_of(FIX, "__init__"), init, state, scheduler, True, 48, connector)
        assert not state.counters.corrections and scheduler.mamba_partial_cache_hit
        assert scheduler.kv_cache_manager.coordinator.enable_partial_hash_hits


def test_blocks_in_the_hosts_memory_are_looked_up_alike():
    cpu = SimpleNamespace(enable_partial_hash_hits=True)
    for connector in (
        SimpleNamespace(scheduler_manager=SimpleNamespace(cpu_coordinator=cpu)),
        SimpleNamespace(_connectors=[store(False), SimpleNamespace(scheduler_manager=None)]),
    ):
        scheduler, state = SimpleNamespace(), FixState(FIX)
        one_call.run(one_call.target_of(FIX, "__init__"), init, state, scheduler, True, 48, connector)
        assert state.counters.corrections == 1 and not scheduler.kv_cache_manager.coordinator.enable_partial_hash_hits
    assert not cpu.enable_partial_hash_hits
