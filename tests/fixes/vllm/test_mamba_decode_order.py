"""vllm.mamba-decode-order without an engine: which rows of a batch are moved."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba_decode_order import wrap
from attnfix.patches.vllm.mamba_decode_order.fix import FIX
from tests.support import one_call

GATHER = one_call.target_of(FIX, "gather_batch_req_state")
FIELDS = "req_ids num_scheduled_tokens num_tokens idx_mapping_np num_computed_prefill_tokens_np is_prefilling_np has_prefill"
Batch = namedtuple("Batch", f"{FIELDS} max_seq_len_np")
DRAFTS = 2
#: name -> (tokens of the step, drafts, tokens of the prompt that are computed, whether the prompt is being computed)
VERIFIED, DECODE = (1 + DRAFTS, DRAFTS, 50, False), (1, 0, 50, False)
SHORT, CHUNK, LAST_TOKEN = (1 + DRAFTS, 0, 0, True), (1 + DRAFTS, 0, 64, True), (1, 0, 30, True)
LONG, PADDED, PADDED_TAIL = (70, 0, 0, True), (1 + DRAFTS, DRAFTS, 0, True), (1 + DRAFTS, DRAFTS, 30, True)


def gathered(rows, kinds=("MAMBA2",), drafts=DRAFTS, dummy=False, context_parallel=None):
    """(names in the order of the batch, corrections, whether all that belongs to a name is still with it)"""
    names = list(rows)
    new, draft, computed, prompt = (np.array(each) for each in zip(*rows.values()))

    def gather_batch_req_state(self, scheduler_output, dummy_run):
        batch = Batch(names, new, int(new.sum()), np.arange(len(names)), computed, prompt, bool(prompt.any()), None)
        return (None if dummy_run else batch), None

    groups = [SimpleNamespace(kv_cache_spec=SimpleNamespace(mamba_type=SimpleNamespace(name=kind))) for kind in kinds]
    runner = SimpleNamespace(
        decode_query_len=1 + drafts, pcp_manager=context_parallel, kv_cache_config=SimpleNamespace(kv_cache_groups=groups)
    )
    step = SimpleNamespace(
        num_scheduled_tokens=dict(zip(names, new.tolist())),
        scheduled_spec_decode_tokens={name: [1] * count for name, count in zip(names, draft) if count},
    )
    state = FixState(FIX)
    state.fired = True
    batch, uniform = one_call.run(GATHER, gather_batch_req_state, state, runner, step, dummy)
    assert uniform is None
    if batch is None:
        return None, state.counters.corrections, True
    order = [names.index(name) for name in batch.req_ids]
    whole = all(
        np.array_equal(mine, theirs[order])
        for mine, theirs in zip(batch[1:2] + batch[3:6], (new, np.arange(len(names)), computed, prompt))
    )
    assert sorted(order) == list(range(len(names))) and batch.num_tokens == new.sum() and batch.max_seq_len_np is None
    return batch.req_ids, state.counters.corrections, whole


def test_a_decode_goes_before_a_prompt_as_long_as_a_verification():
    rows = {"verified": VERIFIED, "short": SHORT, "decode": DECODE, "long": LONG}
    assert gathered(rows) == (["verified", "decode", "short", "long"], 1, True)


def test_a_padded_prompt_that_has_a_state_is_a_decode():
    rows = {"tail": PADDED_TAIL, "short": SHORT, "decode": DECODE}
    assert gathered(rows) == (["tail", "decode", "short"], 1, True)


def test_each_decode_goes_before_and_all_others_keep_their_order():
    rows = {"a": SHORT, "b": CHUNK, "c": DECODE, "d": LAST_TOKEN, "e": DECODE, "f": LONG}
    assert gathered(rows) == (["c", "e", "a", "b", "d", "f"], 1, True)


@pytest.mark.parametrize(
    "rows",
    [
        {"verified": VERIFIED, "decode": DECODE, "long": LONG},
        {"verified": VERIFIED, "short": SHORT, "long": LONG},
        {"verified": VERIFIED, "decode": DECODE},
        {"last": LAST_TOKEN, "decode": DECODE, "long": LONG},  # to the layers it is a decode
        {"tail": PADDED_TAIL, "verified": VERIFIED, "decode": DECODE},  # rows with drafts are the first, whatever they are
        {"padded": PADDED, "verified": VERIFIED, "short": SHORT, "decode": DECODE},  # all behind it are prompts, in any order
        {"short": SHORT, "other": LONG},
    ],
    ids=lambda rows: " ".join(rows),
)
def test_where_no_decode_stands_behind_a_prompt_nothing_is_done(rows):
    assert gathered(rows) == (list(rows), 0, True)


@pytest.mark.parametrize("kinds", [(), ("GDN_ATTN",), ("MAMBA1",), ("LINEAR",), ("GDN_ATTN", "SHORT_CONV")])
def test_layers_that_do_not_go_by_the_order(kinds):
    assert gathered({"short": SHORT, "decode": DECODE}, kinds) == (["short", "decode"], 0, True)


def test_layers_that_do_not_go_by_the_order_cost_no_order(monkeypatch):
    monkeypatch.setattr(wrap, "decodes_first", lambda *batch: pytest.fail("an order was made"))
    rows = {"verified": VERIFIED, "short": SHORT, "decode": DECODE}
    assert gathered(rows, ["GDN_ATTN"]) == (list(rows), 0, True)


def test_layers_of_several_kinds():
    assert gathered({"short": SHORT, "decode": DECODE}, ("GDN_ATTN", "MAMBA2"))[1] == 1


def test_a_server_without_drafts():
    rows = {"short": (1, 0, 0, True), "decode": DECODE}
    assert gathered(rows, drafts=0) == (list(rows), 0, True)


def test_a_dummy_run():
    assert gathered({"short": SHORT, "decode": DECODE}, dummy=True) == (None, 0, True)


def test_ranks_that_share_out_a_prompt():
    assert gathered({"short": SHORT, "decode": DECODE}, context_parallel=object()) == (["short", "decode"], 0, True)
