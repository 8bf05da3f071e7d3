"""sglang.triton-window-decode without an engine: whose decode is given a token more, which calls are, that graphs have room for
it, and that all is as it was afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.triton_window_decode.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

WINDOW = 8  # the checkpoint's
INIT, GRAPHS, EAGER, REPLAY = FIX.targets


class Mode:
    def __init__(self, name):
        self.name = name

    def is_decode(self):
        return self.name == "decode"


class Backend:
    """Notes the window that its functions see."""

    def __init__(self, model_runner, skip_prefill=False):
        self.sliding_window_size = model_runner.sliding_window_size

    def init_cuda_graph_state(self, max_bs, max_num_tokens, kv_indices_buf=None):
        self.cuda_graph_window_kv_indices = torch.zeros(max_num_tokens * self.sliding_window_size)

    def init_forward_metadata(self, forward_batch):
        self.seen = self.sliding_window_size

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        self.seen = self.sliding_window_size

    def init_forward_metadata_replay_cuda_graph(
        self, bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, seq_lens_cpu
    ):
        self.seen = self.sliding_window_size


def runner(size=WINDOW - 1, layers=(WINDOW - 1, -1), draft=False, **config):
    kind = SimpleNamespace(value="decoder")
    model = SimpleNamespace(modules=lambda: [SimpleNamespace(attn_type=kind, sliding_window_size=one) for one in layers])
    text = SimpleNamespace(**config or {"sliding_window": WINDOW})
    return SimpleNamespace(
        sliding_window_size=size, model=model, is_draft_worker=draft, model_config=SimpleNamespace(hf_text_config=text)
    )


def backend(graphs=None, **given):
    found = object.__new__(Backend)
    one_call.run(INIT, Backend.__init__, FixState(FIX), found, runner(**given))
    if graphs:
        one_call.run(GRAPHS, Backend.init_cuda_graph_state, FixState(FIX), found, graphs, graphs)
        assert found.sliding_window_size == (given.get("size", WINDOW - 1))
    return found


def batch(lens=(30, 3), mode="decode", spec=None):
    host = None if lens is None else torch.tensor(lens)
    size = 2 if lens is None else len(lens)
    return SimpleNamespace(batch_size=size, forward_mode=Mode(mode), spec_info=spec, seq_lens_cpu=host)


def called(target, it, *args):
    """(window that the engine's function saw, corrections, requests that were given a token)"""
    state, window = FixState(FIX), it.sliding_window_size
    function = Backend.init_forward_metadata if target is EAGER else Backend.init_forward_metadata_out_graph
    if len(args) > 1:
        function = Backend.init_forward_metadata_replay_cuda_graph
    host = args[-1] if len(args) > 1 else args[0].seq_lens_cpu
    with NoSync(*([] if host is None else [host])):
        one_call.run(target, function, state, it, *args)
    assert it.sliding_window_size == window
    return it.seen, state.counters.corrections, state.counters.rows


def replay_of(given, bs=2):
    return bs, "rows", "lens", 33, None, given.forward_mode, given.spec_info, given.seq_lens_cpu


def test_a_decode_step_sees_the_whole_window():
    it = backend(graphs=4)
    assert called(EAGER, it, batch()) == (WINDOW, 1, 1)
    assert called(REPLAY, it, batch()) == (WINDOW, 1, 1)
    assert called(REPLAY, it, *replay_of(batch())) == (WINDOW, 1, 1)


@pytest.mark.parametrize("lens, rows", [((WINDOW - 1,), None), ((WINDOW,), 1), ((WINDOW, 1, WINDOW + 1), 2)])
def test_requests_that_stock_lists_whole_are_not_counted(lens, rows):
    assert called(EAGER, backend(), batch(lens)) == (WINDOW, int(rows is not None), rows or 0)


def test_without_lengths_on_the_host_the_step_is_counted():
    assert called(EAGER, backend(), batch(None)) == (WINDOW, 1, 0)


@pytest.mark.parametrize("given", [batch(mode="extend"), batch(mode="verify"), batch(mode="idle"), batch(spec="drafts")])
def test_other_batches_see_the_engines_window(given):
    it = backend(graphs=4)
    for target, args in ((EAGER, (given,)), (REPLAY, (given,)), (REPLAY, replay_of(given))):
        assert called(target, it, *args) == (WINDOW - 1, 0, 0)


@pytest.mark.parametrize(
    "given",
    [
        {"size": WINDOW, "layers": (WINDOW, -1)},
        {"size": None, "layers": (-1,)},
        {"size": 0, "layers": (0, -1), "sliding_window": 1},
        {"layers": (WINDOW - 1, WINDOW, -1)},
        {"layers": (2 * WINDOW - 1, -1)},
        {"draft": True},
        {"sliding_window": None},
        {"max_position_embeddings": WINDOW},
    ],
    ids=["whole", "none", "the token alone", "two sizes", "another size", "drafts", "null", "not in the config"],
)
def test_models_whose_decode_is_right_or_not_known_are_left_alone(given):
    it = backend(**given)
    if it.sliding_window_size:
        one_call.run(GRAPHS, Backend.init_cuda_graph_state, FixState(FIX), it, 4, 4)
        assert len(it.cuda_graph_window_kv_indices) == 4 * it.sliding_window_size
        assert called(REPLAY, it, batch())[1] == 0
    assert called(EAGER, it, batch()) == (it.sliding_window_size, 0, 0)


def test_a_config_may_call_it_the_size():
    assert called(EAGER, backend(sliding_window_size=WINDOW), batch())[0] == WINDOW


def test_graphs_have_room_for_it():
    assert len(backend(graphs=4).cuda_graph_window_kv_indices) == 4 * WINDOW


def test_where_graphs_have_no_room_the_step_stays_as_it_is():
    it = backend()
    it.init_cuda_graph_state(4, 4)
    assert called(REPLAY, it, batch([30] * 4)) == (WINDOW - 1, 0, 0)
    assert called(REPLAY, it, *replay_of(batch([30] * 4), bs=4)) == (WINDOW - 1, 0, 0)
    assert called(REPLAY, it, batch([30] * 3)) == (WINDOW, 1, 3), "they fit"


def test_a_backend_from_before_the_fix_was_armed_is_left_alone():
    it = Backend(runner())
    assert called(EAGER, it, batch()) == (WINDOW - 1, 0, 0)
