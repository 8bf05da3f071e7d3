"""vllm.mamba2-short-chunk without an engine: rows that are moved or split, and full graphs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba2_short_chunk.fix import FIX
from tests.support import one_call

DRAFTS = 3
#: Scheduled tokens, computed ones, tokens of the prompt, and drafts
VERIFY, DECODE, REST, LONG, NEW, ONE = (4, 9, 8, 3), (1, 9, 8, 0), (3, 8, 11, 0), (9, 8, 40, 0), (2, 0, 2, 0), (1, 0, 1, 0)


class Batch(SimpleNamespace):
    def swap_states(self, a, b):
        for rows in (self.req_ids, self.num_computed_tokens_cpu, self.num_prompt_tokens, self.num_tokens_no_spec):
            rows[a], rows[b] = rows[b], rows[a]
        self.req_id_to_index = {name: row for row, name in enumerate(self.req_ids)}


def runner(rows, kind="mamba2"):
    """A runner whose requests are named by their rows; its scheduler's output."""
    new, computed, prompt, drafts = (np.array(column, dtype=np.int32) for column in zip(*rows))
    names = [str(row) for row in range(len(rows))]
    known = np.where(computed < prompt, prompt, computed + 1)
    batch = Batch(
        req_ids=list(names), req_id_to_index={name: row for row, name in enumerate(names)}, num_computed_tokens_cpu=computed,
        num_prompt_tokens=prompt, num_tokens_no_spec=known,
    )  # fmt: skip
    groups = [SimpleNamespace(kv_cache_spec=SimpleNamespace(mamba_type=kind))]
    step = SimpleNamespace(
        num_scheduled_tokens=dict(zip(names, new.tolist())),
        scheduled_spec_decode_tokens={name: [1] * count for name, count in zip(names, drafts.tolist()) if count},
    )
    waited = []
    return SimpleNamespace(
        input_batch=batch, kv_cache_config=SimpleNamespace(kv_cache_groups=groups), uniform_decode_query_len=1 + DRAFTS,
        num_accepted_tokens_event=SimpleNamespace(synchronize=lambda: waited.append(True)), waited=waited,
    ), step  # fmt: skip


def reorder(rows, kind="mamba2"):
    """(rows in their new order, whether the copy was waited for, corrections)"""
    self, step = runner(rows, kind)
    state = FixState(FIX)
    target = one_call.target_of(FIX, "_may_reorder_batch")
    one_call.run(target, lambda self, scheduler_output: None, state, self, step)
    return [int(name) for name in self.input_batch.req_ids], bool(self.waited), state.counters.corrections


@pytest.mark.parametrize(
    "rows, order",
    [
        ([REST, VERIFY], [1, 0]),
        ([DECODE, REST, VERIFY, LONG, VERIFY, NEW], [0, 2, 4, 1, 3, 5]),
        ([REST, LONG, DECODE, VERIFY], [2, 3, 0, 1]),
    ],
)
def test_verifications_and_decodes_are_moved_before_short_prompts(rows, order):
    assert reorder(rows) == (order, True, 1)


@pytest.mark.parametrize("rows", [[VERIFY, REST], [VERIFY, DECODE, LONG, NEW], [VERIFY, NEW], [VERIFY, ONE]])
def test_rows_in_order_stay(rows):
    assert reorder(rows) == (list(range(len(rows))), False, 0)


@pytest.mark.parametrize("rows, kind", [([REST, VERIFY], "gdn"), ([REST, DECODE], "mamba2"), ([VERIFY] * 2, "mamba2")])
def test_other_models_and_steps_are_left_alone(rows, kind):
    assert reorder(rows, kind) == (list(range(len(rows))), False, 0)


def decide(rows, eager=False, forced=None, kind="mamba2"):
    """(what the runner is told of the batch, corrections)"""

    def determine(
        self, num_tokens, num_reqs, num_scheduled_tokens_np, max_num_scheduled_tokens, use_cascade_attn, force_eager=False,
        force_uniform_decode=None,
    ):  # fmt: skip
        return force_uniform_decode

    self, _ = runner(rows, kind)
    new = np.array([row[0] for row in rows], dtype=np.int32)
    state = FixState(FIX)
    told = one_call.run(
        one_call.target_of(FIX, "_determine_batch_execution_and_padding"), determine, state, self, int(new.sum()), len(rows),
        new, int(new.max()), False, force_eager=eager, force_uniform_decode=forced,
    )  # fmt: skip
    return told, state.counters.corrections


def test_a_short_prompt_makes_no_uniform_decode():
    assert decide([VERIFY, (4, 8, 12, 0)]) == (False, 1)
    assert decide([(4, 0, 4, 0)]) == (False, 1)


@pytest.mark.parametrize(
    "rows, more", [
        ([VERIFY, VERIFY], {}), ([VERIFY, REST], {}), ([VERIFY, (4, 8, 12, 0)], {"eager": True}),
        ([VERIFY, (4, 8, 12, 0)], {"kind": "gdn_attention"}),
    ]
)  # fmt: skip
def test_other_shapes_are_left_to_the_runner(rows, more):
    assert decide(rows, **more) == (None, 0)


def test_a_capture_says_itself_what_it_is():
    assert decide([VERIFY, (4, 8, 12, 0)], forced=True) == (True, 0)


def split_decodes_and_prefills(common_attn_metadata, decode_threshold=1):
    return "stock"


class Builder:
    reorder_batch_threshold = 1 + DRAFTS

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False, **kwargs):
        if self.ends:
            raise RuntimeError("the engine's")
        return self._compute_common_metadata(common_attn_metadata)

    def _compute_common_metadata(self, common_attn_metadata, *, num_accepted_tokens=None):
        return split_decodes_and_prefills(common_attn_metadata, decode_threshold=4)


def build(rows, drafted=True, ends=False):
    """(how rows are split, corrections)"""
    new, computed, _, drafts = (torch.tensor(column, dtype=torch.int32) for column in zip(*rows))
    starts = torch.tensor([0, *new.cumsum(0).tolist()], dtype=torch.int32)
    batch = SimpleNamespace(
        query_start_loc_cpu=starts, _num_computed_tokens_cpu=computed, num_reqs=len(rows), num_actual_tokens=int(new.sum())
    )
    builder, state = Builder(), FixState(FIX)
    builder.ends = ends
    inner = one_call.wrapper(one_call.target_of(FIX, "_compute_common_metadata"), Builder._compute_common_metadata, state)
    builder._compute_common_metadata = lambda *args, **kwargs: inner.function(builder, *args, **kwargs)
    more = {"num_accepted_tokens": torch.ones(len(rows)), "num_decode_draft_tokens_cpu": torch.where(drafts > 0, drafts, -1)}
    try:
        found = one_call.run(
            one_call.target_of(FIX, "build"), Builder.build, state, builder, 0, batch, **(more if drafted else {})
        )  # fmt: skip
    finally:
        assert not hasattr(builder, "attnfix_verifications")
    return found, state.counters.corrections


@pytest.mark.parametrize(
    "rows, split",
    [
        ([VERIFY, DECODE, REST, LONG], (2, 2, 5, 12)),
        ([NEW, NEW], (0, 2, 0, 4)),
        ([VERIFY, ONE], (1, 1, 4, 1)),
        ([VERIFY, REST, (0, 0, 0, 0)], (1, 2, 4, 3)),
    ],
)
def test_a_short_prompt_is_a_prompt(rows, split):
    assert build(rows) == (split, 1)


@pytest.mark.parametrize("rows", [[VERIFY, DECODE], [VERIFY, LONG, NEW], [REST, VERIFY], [VERIFY, (0, 0, 0, 0)]])
def test_rows_that_stock_splits_rightly_or_that_are_out_of_order_are_left_alone(rows):
    assert build(rows) == ("stock", 0)


def test_a_step_without_drafts_is_left_alone():
    assert build([DECODE, REST], drafted=False) == ("stock", 0)


def test_an_error_of_the_engine_passes():
    with pytest.raises(RuntimeError, match="the engine's"):
        build([VERIFY, REST], ends=True)
