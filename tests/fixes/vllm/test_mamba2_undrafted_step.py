"""vllm.mamba2-undrafted-step without an engine: which steps tell their builders of accepted drafts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba2_undrafted_step.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "_build_attention_metadata")
#: Scheduled tokens, computed ones, and accepted ones of the last step
DECODE, ACCEPTED, LAST, SHORT, LONG, ONE = (1, 9, 1), (1, 9, 3), (1, 8, 1), (4, 8, 1), (20, 0, 1), (1, 0, 1)


class Runner(SimpleNamespace):
    def build(self, num_tokens, num_reqs, max_query_len, ubatch_slices=None, logits_indices=None, use_spec_decode=False):
        if self.ends:
            raise RuntimeError("the engine's")
        return use_spec_decode, [builder.reorder_batch_threshold for builder in self.builders]


def run(
    rows, kind="Mamba2AttentionMetadataBuilder", asked=True, drafted=False, drafts=3, mode="none", ubatches=None, ends=False,
    lands=None,
):  # fmt: skip
    """(what the runner tells, thresholds of the builders meanwhile), and corrections."""
    new, computed, accepted = (np.array(column, dtype=np.int32) for column in zip(*rows))
    builders = [type(name, (), {})() for name in (kind, "FlashAttentionMetadataBuilder")]
    for builder in builders:
        builder.reorder_batch_threshold = 1 + drafts
    runner = Runner(
        num_spec_tokens=drafts, query_start_loc=SimpleNamespace(np=np.array([0, *np.cumsum(new), 99])), ends=ends,
        input_batch=SimpleNamespace(num_computed_tokens_cpu=computed, num_accepted_tokens_cpu=accepted), builders=builders,
        cache_config=SimpleNamespace(mamba_cache_mode=mode),
        attn_groups=[[SimpleNamespace(get_metadata_builder=lambda ubatch, one=one: one)] for one in builders],
    )  # fmt: skip
    if lands is not None:
        runner.num_accepted_tokens_event = SimpleNamespace(synchronize=lambda: accepted.__setitem__(slice(None), lands))
    state = FixState(FIX)
    try:
        found = one_call.run(
            TARGET, Runner.build, state, runner, 99, len(rows), 9, ubatch_slices=ubatches,
            logits_indices="rows" if asked else None, use_spec_decode=drafted,
        )  # fmt: skip
    finally:
        assert [builder.reorder_batch_threshold for builder in builders] == [1 + drafts] * 2
    return found, state.counters.corrections


@pytest.mark.parametrize(
    "rows", [[DECODE], [ACCEPTED, DECODE], [DECODE, LAST], [ACCEPTED, SHORT, LONG], [DECODE, LONG], [DECODE, SHORT, DECODE]]
)
def test_decodes_without_drafts_are_verifications_of_one_token(rows):
    assert run(rows) == ((True, [1, 4]), 1)


@pytest.mark.parametrize(
    "rows", [[LONG], [SHORT, DECODE], [ONE], [DECODE, ONE], [DECODE, SHORT, ACCEPTED], [DECODE, LONG, ACCEPTED]]
)
def test_rows_that_would_go_on_from_another_state_are_left_alone(rows):
    assert run(rows) == ((False, [4, 4]), 0)


@pytest.mark.parametrize(
    "launch", [{"asked": False}, {"drafts": 0}, {"mode": "all"}, {"ubatches": []}, {"kind": "Mamba1AttentionMetadataBuilder"}]
)
def test_other_servers_and_steps_are_left_alone(launch):
    assert run([DECODE], **launch) == ((False, [1 + launch.get("drafts", 3)] * 2), 0)


def test_a_step_in_which_somebody_has_drafts_is_left_alone():
    assert run([DECODE], drafted=True) == ((True, [4, 4]), 0)


def test_an_error_of_the_engine_passes():
    with pytest.raises(RuntimeError, match="the engine's"):
        run([DECODE], ends=True)


@pytest.mark.parametrize("counted, lands, told", [(1, 3, False), (3, 1, True)])
def test_numbers_that_are_on_their_way_are_waited_for(counted, lands, told):
    found, corrections = run([DECODE, LONG, (1, 9, counted)], lands=lands)
    assert found[0] is told and corrections == told
