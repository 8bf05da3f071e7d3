"""sglang.uniform-replay-stride-mla without an engine: what replay is shown, what it may not touch, what it costs."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.uniform_replay_stride_mla.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

NAMES = ("bs", "req_pool_indices", "seq_lens", "seq_lens_sum", "encoder_lens", "forward_mode", "spec_info", "seq_lens_cpu")
ROOM = 8


class Spec:
    """A draft input whose lengths nobody may read."""

    positions = object()

    @property
    def accept_length(self):
        raise AssertionError("accept_length was read")

    @property
    def accept_length_cpu(self):
        raise AssertionError("accept_length_cpu was read")


def replay(self, bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, seq_lens_cpu):
    """Stands for the engine's: returns all that it is shown, by name."""
    return locals()


class Operators(TorchDispatchMode):
    """Names of all operators that ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def arguments(bs, mode):
    forward_mode = SimpleNamespace(is_draft_extend_v2=lambda: mode == "DRAFT_EXTEND_V2")
    seq_lens = torch.arange(ROOM, dtype=torch.int32)
    return dict(zip(NAMES, (bs, torch.zeros(ROOM), seq_lens, 0, None, forward_mode, Spec(), torch.zeros(ROOM))))


def call(state, backend, arguments):
    """What the engine's replay is shown, which is what it returns."""
    return one_call.run(state.fix.targets[0], replay, state, backend, *arguments.values())


def shown_to_the_engine(fix, backend, length, bs):
    state, given_ = FixState(fix), arguments(bs, "DRAFT_EXTEND_V2")
    with NoSync():
        seen = call(state, backend, given_)
    spec = seen["spec_info"]
    assert all(seen[name] is given_[name] for name in NAMES if name != "spec_info")
    assert spec.positions is Spec.positions
    assert spec.accept_length[:bs].tolist() == spec.accept_length_cpu[:bs] == [length] * bs
    assert spec.accept_length.dtype == torch.int32 and spec.accept_length.shape == (ROOM,)
    assert (state.counters.corrections, state.counters.rows) == (1, bs)


def other_modes_pass_untouched(fix, backend):
    before = set(vars(backend))
    for mode in ("DRAFT_EXTEND", "TARGET_VERIFY", "DECODE"):
        state, given_ = FixState(fix), arguments(2, mode)
        with Operators() as operators:
            seen = call(state, backend, given_)
        assert all(seen[name] is given_[name] for name in NAMES)
        assert not state.counters.corrections and not operators.names
    assert set(vars(backend)) == before


def a_hundred_replays_allocate_once(fix, backend):
    state, addresses, launched = FixState(fix), set(), []
    given_ = arguments(3, "DRAFT_EXTEND_V2")
    for _ in range(100):
        with Operators() as operators:
            seen = call(state, backend, given_)
        addresses.add(seen["spec_info"].accept_length.data_ptr())
        launched.append(operators.names)
    assert len(addresses) == 1
    assert launched == [["full"]] + [[]] * 99


def backend_of(stride):
    return SimpleNamespace(num_draft_tokens=stride, decode_cuda_graph_kv_indices=torch.zeros(ROOM, 4))


@given(st.integers(1, ROOM), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_the_engine_is_shown_one_less_than_the_stride(bs, stride):
    shown_to_the_engine(FIX, backend_of(stride), stride - 1, bs)


def test_other_modes_pass_untouched():
    other_modes_pass_untouched(FIX, backend_of(4))


def test_a_hundred_replays_allocate_once():
    a_hundred_replays_allocate_once(FIX, backend_of(4))
