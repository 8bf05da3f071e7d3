"""Correction of vllm.partial-hit-assert."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.compat.fix import Call


def init(call: Call, instance: Any) -> None:
    """The scheduler of an engine core, which makes the cache managers, and asks them as no prefix has been looked up."""
    call()
    coordinator = instance.kv_cache_manager.coordinator
    if not (getattr(coordinator, "enable_partial_hash_hits", False) and refused(coordinator)):
        return
    connectors = [*each(getattr(instance, "connector", None))]
    if any(map(asks_by_itself, connectors)):
        return
    instance.mamba_partial_cache_hit = False
    for one in (coordinator, *filter(None, map(coordinator_of, connectors))):
        one.enable_partial_hash_hits = False
    call.corrected()


def each(connector: Any) -> Iterator[Any]:
    """A connector, or those that a MultiConnector has."""
    inner = getattr(connector, "_connectors", None)
    if inner is None:
        yield connector
    else:
        for one in inner:
            yield from each(one)


def asks_by_itself(connector: Any) -> bool:
    """Whether a worker of it looks prefixes up: Mooncake's store from 0.27.0. It asks for parts of blocks all the same, and
    its thread ends: requests would wait for ever where stock ends."""
    return bool(getattr(getattr(connector, "connector_scheduler", None), "enable_partial_hash_hits", False))


def coordinator_of(connector: Any) -> Any:
    """That of the blocks in the host's memory, which has the same groups of layers (SimpleCPUOffloadConnector)."""
    coordinator = getattr(getattr(connector, "scheduler_manager", None), "cpu_coordinator", None)
    return coordinator if getattr(coordinator, "enable_partial_hash_hits", False) else None


def refused(coordinator: Any) -> bool:
    """Whether a group of layers has a manager that finds whole blocks alone, and blocks that are longer than a hash."""
    return any(
        not manager.supports_fine_grained_hash_lookup and manager.block_size != coordinator.hash_block_size
        for manager in coordinator.single_type_managers
    )
