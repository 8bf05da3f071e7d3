"""sglang.mamba-snapshot-race without an engine: when the scheduler's stream waits for a chunk."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_snapshot_race.fix import FIX
from tests.support import one_call


@pytest.mark.parametrize("target", ["get_next_batch_to_run", "process_prefill_chunk"])
@pytest.mark.parametrize("given, waits", [
    ({}, True),
    ({"_chunked_req_scheduled_last_iter": True}, True),
    ({"_chunked_req_scheduled_last_iter": False}, False),
    ({"chunked_req": None}, False),
    ({"chunked_req": SimpleNamespace(mamba_last_track_seqlen=None)}, False),
    ({"enable_overlap": False}, False),
    ({"req_to_token_pool": SimpleNamespace()}, False),
    ({"req_to_token_pool": SimpleNamespace(enable_mamba_extra_buffer=False)}, False),
    ({"server_args": SimpleNamespace(disable_radix_cache=True)}, False),
])  # fmt: skip
def test_a_chunk_is_waited_for_before_anything_else(target, given, waits):
    order: list[object] = []
    own = SimpleNamespace(wait_stream=order.append)
    pool, streams = SimpleNamespace(enable_mamba_extra_buffer=True), SimpleNamespace(current_stream=lambda: own)
    scheduler = SimpleNamespace(
        chunked_req=SimpleNamespace(mamba_last_track_seqlen=64), enable_overlap=True, forward_stream="forward",
        req_to_token_pool=pool, device_module=streams, server_args=SimpleNamespace(disable_radix_cache=False),
    )  # fmt: skip
    vars(scheduler).update(given)
    state = FixState(FIX)
    assert (
        one_call.run(one_call.target_of(FIX, target), lambda self: order.append("engine") or "batch", state, scheduler)
        == "batch"
    )
    assert order == (["forward", "engine"] if waits else ["engine"]) and state.counters.corrections == waits
