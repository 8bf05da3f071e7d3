"""sglang.mamba-overlap-states without an engine: launches that no longer overlap, and those that are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_overlap_states.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "_handle_other_validations")


@pytest.mark.parametrize("config, given, off, corrections", [
    ("Qwen3NextConfig", {}, True, 1),
    ("JetNemotronConfig", {}, True, 1),
    ("JetVLMConfig", {}, True, 1),
    ("LlamaConfig", {}, False, 0),
    ("NemotronHConfig", {}, False, 0),
    ("Qwen3NextConfig", {"disable_radix_cache": True}, False, 0),
    ("Qwen3NextConfig", {"disable_overlap_schedule": True}, True, 0),
    ("Qwen3NextConfig", {"speculative_algorithm": "EAGLE"}, False, 0),
])  # fmt: skip
def test_which_launches_overlap(config, given, off, corrections):
    args = SimpleNamespace(
        disable_radix_cache=False, disable_overlap_schedule=False, speculative_algorithm=None,
        get_hf_config=type(config, (), {}),
    )  # fmt: skip
    vars(args).update(given)
    state = FixState(FIX)
    one_call.run(TARGET, lambda self: None, state, args)
    assert (args.disable_overlap_schedule, state.counters.corrections) == (off, corrections)
