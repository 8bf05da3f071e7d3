"""sglang.triton-draft-double-count without an engine: what replay is shown, what it may not touch; two fixes on one target."""

from __future__ import annotations

from types import SimpleNamespace

import one_call
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from no_sync import NoSync
from test_uniform_replay_stride_mla import NAMES, ROOM, Replay, call, other_modes_pass_untouched

from attnfix.compat.fix import Place
from attnfix.compat.states import FixState
from attnfix.compat.wrapping import TargetWrapper
from attnfix.patches.sglang import triton_draft_double_count, uniform_replay_stride_triton
from attnfix.patches.sglang.triton_draft_double_count import FIX, wrap

CORRECTION = wrap.init_forward_metadata_replay_cuda_graph
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
    before, replay = given_["seq_lens"].clone(), Replay()
    with NoSync():
        assert call(CORRECTION, replay, BACKEND, given_) == "the engine's"
    shown = replay.seen["seq_lens"]
    assert shown.tolist() == prefix and shown.dtype == dtype
    assert all(replay.seen[name] is given_[name] for name in NAMES if name != "seq_lens")
    assert torch.equal(given_["seq_lens"], before) and replay.rows == [bs]


def test_padding_rows_have_nothing_cached():
    """Their sequence is one token long, and the step's are counted as any request's."""
    replay = Replay()
    call(CORRECTION, replay, BACKEND, arguments(4, [9, 12], [4, 4]))
    assert replay.seen["seq_lens"].tolist() == [5, 8, 0, 0]


def test_other_modes_pass_untouched():
    other_modes_pass_untouched(CORRECTION, SimpleNamespace())


def test_without_the_runners_count_nothing_is_touched():
    """As at capture, whose result nobody reads."""
    given_, replay = arguments(2, [9, 12], [4, 4]), Replay()
    del given_["spec_info"].extend_seq_lens_tensor
    call(CORRECTION, replay, BACKEND, given_)
    assert replay.seen["seq_lens"] is given_["seq_lens"] and not replay.rows


def test_counts_of_another_batch_leave_the_engine_its_own_lengths():
    given_, seen, state = arguments(3, [9, 12, 7], [4, 4, 4]), {}, FixState(FIX)
    given_["spec_info"].extend_seq_lens_tensor = torch.zeros(2, dtype=torch.int32)
    one_call.run(lambda *args: seen.update(zip(NAMES, args)), state, CORRECTION, None, tuple(given_.values()), {})
    assert seen["seq_lens"] is given_["seq_lens"] and state.state == "failed"


@pytest.mark.parametrize("order", [1, -1])
def test_both_fixes_of_the_replay_correct_their_own_argument(order):
    """sglang.uniform-replay-stride-triton stands on the same target: neither sees or undoes what the other shows."""
    backend = SimpleNamespace(speculative_num_steps=3, qo_indptr=torch.zeros(ROOM + 1, dtype=torch.int32))
    given_, replay = arguments(2, [9, 12], [4, 4]), Replay()
    states = [FixState(module.FIX) for module in (uniform_replay_stride_triton, triton_draft_double_count)][::order]

    def replay_graph(
        self, bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, seq_lens_cpu
    ):  # fmt: skip
        return replay(bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, seq_lens_cpu)

    wrapper = TargetWrapper(replay_graph, Place("engine", "Backend.replay"))
    for state in states:
        state.armed = True
        wrapper.add(state, state.fix.targets[0].correction)
    assert wrapper.function(backend, **given_) == "the engine's"
    assert replay.seen["seq_lens"].tolist() == [5, 8]
    assert replay.seen["spec_info"].accept_length[:2].tolist() == [4, 4]
    assert [state.counters.corrections for state in states] == [1, 1]
