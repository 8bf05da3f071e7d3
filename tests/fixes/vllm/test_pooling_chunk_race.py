"""vllm.pooling-chunk-race without an engine: a runner that gets the event, and those that are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.pooling_chunk_race import wrap
from attnfix.patches.vllm.pooling_chunk_race.fix import FIX
from tests.support import one_call

RUNNER = type("GPUModelRunner", (), {"__module__": wrap.RUNNER})


def construct(self, vllm_config, device):
    self.prepare_inputs_event = "engine's" if vllm_config.scheduler_config.async_scheduling else None


@pytest.mark.parametrize("cls, runner, chunked, ahead, event, corrections", [
    (RUNNER, "pooling", True, False, "ours", 1),
    (RUNNER, "pooling", True, True, "engine's", 0),
    (RUNNER, "pooling", False, False, None, 0),
    (RUNNER, "generate", True, False, None, 0),
    (type("CPUModelRunner", (RUNNER,), {"__module__": "elsewhere"}), "pooling", True, False, None, 0),
])  # fmt: skip
def test_who_gets_the_event(cls, runner, chunked, ahead, event, corrections, monkeypatch):
    monkeypatch.setattr(wrap, "input_event", lambda: "ours")
    config = SimpleNamespace(
        model_config=SimpleNamespace(runner_type=runner),
        scheduler_config=SimpleNamespace(async_scheduling=ahead, enable_chunked_prefill=chunked),
    )
    made, state = cls(), FixState(FIX)
    one_call.run(one_call.target_of(FIX, "__init__"), construct, state, made, config, "cuda")
    assert (made.prepare_inputs_event, state.counters.corrections) == (event, corrections)
