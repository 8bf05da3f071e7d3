"""vllm.pp-pinned-inputs without an engine: a stage of three gets the event, one of two does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.pp_pinned_inputs.fix import FIX
from attnfix.patches.vllm.shared import input_prep
from tests.support import one_call

RUNNER = type("GPUModelRunner", (), {"__module__": input_prep.RUNNER})


def construct(self, vllm_config, device):
    self.prepare_inputs_event = None


@pytest.mark.parametrize("stages, event, corrections", [(3, "ours", 1), (2, None, 0), (1, None, 0)])
def test_who_gets_the_event(stages, event, corrections, monkeypatch):
    monkeypatch.setattr(input_prep, "input_event", lambda: "ours")
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(pipeline_parallel_size=stages), scheduler_config=SimpleNamespace(async_scheduling=False)
    )
    made, state = RUNNER(), FixState(FIX)
    one_call.run(one_call.target_of(FIX, "__init__"), construct, state, made, config, "cuda")
    assert (made.prepare_inputs_event, state.counters.corrections) == (event, corrections)
