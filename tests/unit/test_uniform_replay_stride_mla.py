"""sglang.uniform-replay-stride-mla without an engine: what replay is shown, what it may not touch, what it costs."""

from __future__ import annotations

from types import SimpleNamespace

import one_call
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from no_sync import NoSync
from torch.utils._python_dispatch import TorchDispatchMode

from attnfix.patches.sglang.uniform_replay_stride_mla import wrap

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


class Replay:
    """The engine's replay, as far as it reads the draft input; and what the one wrapper offers to a correction."""

    def __init__(self):
        self.rows, self.seen = [], None

    def __call__(self, *args, **kwargs):
        self.seen = kwargs | dict(zip(NAMES, args))
        return "the engine's"

    def corrected(self, rows=0):
        self.rows.append(rows)


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


def call(correction, replay, backend, arguments):
    return one_call.corrected(correction, replay, backend, tuple(arguments.values()), {})


def shown_to_the_engine(correction, backend, length, bs):
    replay, given_ = Replay(), arguments(bs, "DRAFT_EXTEND_V2")
    with NoSync():
        assert call(correction, replay, backend, given_) == "the engine's"
    spec = replay.seen.pop("spec_info")
    assert all(replay.seen[name] is given_[name] for name in NAMES if name != "spec_info")
    assert spec.positions is Spec.positions
    assert spec.accept_length[:bs].tolist() == spec.accept_length_cpu[:bs] == [length] * bs
    assert spec.accept_length.dtype == torch.int32 and spec.accept_length.shape == (ROOM,)
    assert replay.rows == [bs]


def other_modes_pass_untouched(correction, backend):
    before = set(vars(backend))
    for mode in ("DRAFT_EXTEND", "TARGET_VERIFY", "DECODE"):
        replay, given_ = Replay(), arguments(2, mode)
        with Operators() as operators:
            assert call(correction, replay, backend, given_) == "the engine's"
        assert all(replay.seen[name] is given_[name] for name in NAMES)
        assert not replay.rows and not operators.names
    assert set(vars(backend)) == before


def a_hundred_replays_allocate_once(correction, backend):
    addresses, launched = set(), []
    given_ = arguments(3, "DRAFT_EXTEND_V2")
    for _ in range(100):
        replay = Replay()
        with Operators() as operators:
            call(correction, replay, backend, given_)
        addresses.add(replay.seen["spec_info"].accept_length.data_ptr())
        launched.append(operators.names)
    assert len(addresses) == 1
    assert launched == [["full"]] + [[]] * 99


def backend_of(stride):
    return SimpleNamespace(num_draft_tokens=stride, decode_cuda_graph_kv_indices=torch.zeros(ROOM, 4))


@given(st.integers(1, ROOM), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_the_engine_is_shown_one_less_than_the_stride(bs, stride):
    correction = wrap.init_forward_metadata_replay_cuda_graph
    shown_to_the_engine(correction, backend_of(stride), stride - 1, bs)


def test_other_modes_pass_untouched():
    other_modes_pass_untouched(wrap.init_forward_metadata_replay_cuda_graph, backend_of(4))


def test_a_hundred_replays_allocate_once():
    a_hundred_replays_allocate_once(wrap.init_forward_metadata_replay_cuda_graph, backend_of(4))
