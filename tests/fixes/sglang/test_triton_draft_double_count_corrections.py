"""sglang.triton-draft-double-count without an engine: what replay is shown, what it may not touch; two fixes on one target."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.triton_draft_double_count.fix import FIX
from attnfix.patches.sglang.uniform_replay_stride_triton.fix import FIX as REPLAY_STRIDE
from tests.fixes.sglang.test_uniform_replay_stride_mla_corrections import NAMES, ROOM, call, other_modes_pass_untouched, replay
from tests.support import one_call
from tests.support.no_sync import NoSync

(TARGET,) = FIX.targets
BACKEND = SimpleNamespace(speculative_num_steps=3)


def arguments(bs, lens, new, dtype=torch.int32):
    """A replay of the runner's buffers, which are longer than the batch."""
    seq_lens, extend = torch.full((ROOM,), 1, dtype=dtype), torch.full((ROOM,), 4, dtype=torch.int32)
    seq_lens[: len(lens)], extend[: len(new)] = torch.tensor(lens), torch.tensor(new)
    mode = SimpleNamespace(is_draft_extend_v2=lambda: True)
    spec = SimpleNamespace(extend_seq_lens_tensor=extend[:bs], accept_length=torch.ones(ROOM, dtype=torch.int32))
    return dict(zip(NAMES, (bs, torch.zeros(ROOM), seq_lens, 0, None, mode, spec, torch.zeros(ROOM))))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 4)), min_size=1, max_size=ROOM),
    st.sampled_from([torch.int32, torch.int64]),
)
@settings(max_examples=60, deadline=None)
def test_the_engine_is_shown_what_was_cached_before_the_step(requests, dtype):
    bs, prefix, new = len(requests), *map(list, zip(*requests))
    given_ = arguments(bs, [p + n for p, n in requests], new, dtype)
    before, state = given_["seq_lens"].clone(), FixState(FIX)
    with NoSync():
        seen = call(state, BACKEND, given_)
    shown = seen["seq_lens"]
    assert shown.tolist() == prefix and shown.dtype == dtype
    assert all(seen[name] is given_[name] for name in NAMES if name != "seq_lens")
    assert torch.equal(given_["seq_lens"], before)
    assert (state.counters.corrections, state.counters.rows) == (1, bs)


def test_padding_rows_have_nothing_cached():
    """Their sequence is one token long, and the step's are counted as any request's."""
    seen = call(FixState(FIX), BACKEND, arguments(4, [9, 12], [4, 4]))
    assert seen["seq_lens"].tolist() == [5, 8, 0, 0]


def test_other_modes_pass_untouched():
    other_modes_pass_untouched(FIX, SimpleNamespace())


def test_without_the_runners_count_nothing_is_touched():
    """As at capture, whose result nobody reads."""
    given_, state = arguments(2, [9, 12], [4, 4]), FixState(FIX)
    del given_["spec_info"].extend_seq_lens_tensor
    assert call(state, BACKEND, given_)["seq_lens"] is given_["seq_lens"] and not state.counters.corrections


def test_counts_of_another_batch_leave_the_engine_its_own_lengths():
    given_, state = arguments(3, [9, 12, 7], [4, 4, 4]), FixState(FIX)
    given_["spec_info"].extend_seq_lens_tensor = torch.zeros(2, dtype=torch.int32)
    seen = one_call.wrapper(TARGET, replay, state).function(BACKEND, *given_.values())
    assert seen["seq_lens"] is given_["seq_lens"] and state.state == "failed"


@pytest.mark.parametrize("order", [1, -1])
def test_both_fixes_of_the_replay_correct_their_own_argument(order):
    """sglang.uniform-replay-stride-triton stands on the same target: neither sees or undoes what the other shows."""
    backend = SimpleNamespace(speculative_num_steps=3, qo_indptr=torch.zeros(ROOM + 1, dtype=torch.int32))
    inner, outer = states = [FixState(fix) for fix in (REPLAY_STRIDE, FIX)][::order]
    wrapper, target = one_call.wrapper(inner.fix.targets[0], replay, inner), outer.fix.targets[0]
    outer.armed = True
    seen = wrapper.add(outer, target.correct, target.needed).function(backend, **arguments(2, [9, 12], [4, 4]))
    assert seen["seq_lens"].tolist() == [5, 8]
    assert seen["spec_info"].accept_length[:2].tolist() == [4, 4]
    assert [state.counters.corrections for state in states] == [1, 1]
