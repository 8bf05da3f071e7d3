"""sglang.eagle-swa-verify without an engine: which inputs are corrected, how the window layers are planned, which keys the mask
of a tree loses, and that all is as it was afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.eagle_swa_verify.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

WINDOW, DRAFT = 8, 5
INIT, UPDATE = FIX.targets
PARENTS = [0, 0, 1, 2]  # of tokens 1 to 4


class EagleVerifyInput:
    def __init__(self, topk=1, custom_mask=None, positions=None):
        self.topk, self.custom_mask, self.positions, self.draft_token_num = topk, custom_mask, positions, DRAFT


class FrozenKVMTPVerifyInput(EagleVerifyInput):
    pass


class DFlashVerifyInput:
    custom_mask = None


class EagleDraftExtendInput:
    custom_mask = None


class Wrapper:
    def __init__(self, graph=None, refuses=False):
        self.refuses = refuses
        self.is_cuda_graph_enabled, self._custom_mask_buf = graph is not None, graph

    def begin_forward(self, *args, **kwargs):
        if "window_left" in kwargs and self.refuses:
            raise RuntimeError("nvcc not found")
        return kwargs

    def forward(self, q, *, causal, window_left=-1):
        return window_left


class Updater:
    """Notes how it planned the window layers."""

    def __init__(self, model_runner, attn_backend):
        self.sliding_window_size, self.attn_backend = model_runner.sliding_window_size, attn_backend

    def update_sliding_window(self, seq_lens, prefix_lens, prefill_wrappers, spec_info, seq_lens_cpu):
        self.lens = [min(n, self.sliding_window_size) for n in seq_lens]
        indptr = torch.tensor([0, *(n + DRAFT for n in self.lens)]).cumsum(0).int()
        mask = None if spec_info is None else spec_info.custom_mask
        self.plan = prefill_wrappers[0].begin_forward("qo", indptr, "indices", custom_mask=mask, q_data_type="half")
        self.other = prefill_wrappers[1].begin_forward("qo", indptr, custom_mask=mask)


def updater(backend=None, layers=(WINDOW, -1)):
    kind = SimpleNamespace(value="decoder")
    model = SimpleNamespace(modules=lambda: [SimpleNamespace(attn_type=kind, sliding_window_size=size) for size in layers])
    found = object.__new__(Updater)
    runner = SimpleNamespace(model=model, sliding_window_size=WINDOW)
    dispatch = SimpleNamespace(name="SLIDING_WINDOW")
    backend = backend or type("FlashInferAttnBackend", (), {})()
    backend.dispatch_reason = dispatch
    one_call.run(INIT, Updater.__init__, FixState(FIX), found, runner, backend)
    return found


def update(it, spec_info, seq_lens, wrappers, known=False):
    """Corrections of a plan; the lengths are `known` on the host, too, or not."""
    state, on_host = FixState(FIX), torch.tensor(seq_lens) if known else None
    try:
        with NoSync(*([on_host] if known else [])):
            one_call.run(UPDATE, Updater.update_sliding_window, state, it, seq_lens, None, wrappers, spec_info, on_host)
    finally:
        assert it.sliding_window_size == WINDOW and all("begin_forward" not in vars(wrapper) for wrapper in wrappers)
    return state.counters.corrections


def tree():
    seen = torch.eye(DRAFT, dtype=torch.bool)
    for token, parent in enumerate(PARENTS, 1):
        seen[token] |= seen[parent]
    return seen


def input_of(cached, raw=None):
    """The input of trees behind so many tokens, of which the first `raw` requests are no padding."""
    raw = len(cached) if raw is None else raw
    masks = [torch.cat([torch.ones(DRAFT, n, dtype=torch.bool), tree()], 1).flatten() for n in cached]
    positions = torch.cat([tree().sum(1) - 1 + n for n in cached[:raw]])
    return EagleVerifyInput(2, torch.cat(masks), positions)


@pytest.mark.parametrize("spec", [EagleVerifyInput(), FrozenKVMTPVerifyInput(), EagleDraftExtendInput()])
def test_chains_and_draft_extend_are_planned_over_all_tokens_with_the_window(spec):
    it, wrappers = updater(), [Wrapper(), Wrapper()]
    assert update(it, spec, [30, 3], wrappers) == 1 and it.lens == [30, 3]
    assert it.plan == {"custom_mask": spec.custom_mask, "q_data_type": "half", "window_left": WINDOW}
    assert it.other == {"custom_mask": spec.custom_mask}
    assert "forward" not in vars(wrappers[0])


@pytest.mark.parametrize("spec", [None, DFlashVerifyInput()])
def test_other_inputs_are_left_alone(spec):
    it = updater()
    assert update(it, spec, [30, 3], [Wrapper(), Wrapper()]) == 0 and it.lens == [WINDOW, 3]
    assert "window_left" not in it.plan


@pytest.mark.parametrize("layers", [(WINDOW, WINDOW + 1, -1), (WINDOW - 1, -1)])
def test_models_with_other_windows_are_left_alone(layers):
    it = updater(layers=layers)
    assert update(it, EagleVerifyInput(), [30, 3], [Wrapper(), Wrapper()]) == 0 and it.lens == [WINDOW, 3]


def test_heirs_of_the_backend_are_left_alone():
    it = updater(type("Heir", (), {})())
    assert update(it, EagleVerifyInput(), [30], [Wrapper(), Wrapper()]) == 0


@pytest.mark.parametrize("cached", [[30, 3, 17], [WINDOW, WINDOW + 1, WINDOW - 1], [1, 2, 3], [100], [4, 200, 6, 9]])
@pytest.mark.parametrize("padding", [0, 1])
def test_with_the_wider_window_the_mask_leaves_the_window(cached, padding):
    it, wrappers, spec = updater(), [Wrapper(), Wrapper()], input_of(cached + [1] * padding, len(cached))
    before = spec.custom_mask.clone()
    assert update(it, spec, cached + [1] * padding, wrappers) == 1
    assert torch.equal(spec.custom_mask, before) and it.other["custom_mask"] is spec.custom_mask, "full layers' mask stays"
    assert it.plan["window_left"] == WINDOW + DRAFT - 1
    assert wrappers[0].forward("q", causal=True, window_left=WINDOW) == WINDOW + DRAFT - 1
    begin, depths = 0, tree().sum(1) - 1
    for n in cached:
        columns, rows = torch.arange(n + DRAFT), torch.arange(DRAFT)[:, None]
        given = it.plan["custom_mask"][begin : begin + DRAFT * (n + DRAFT)].view(DRAFT, -1)
        seen = given & (columns >= n + rows - it.plan["window_left"])
        wanted = torch.cat([columns[:n] >= n + depths[:, None] - WINDOW, tree()], 1)
        assert torch.equal(seen, wanted)
        begin += DRAFT * (n + DRAFT)
    assert torch.equal(it.plan["custom_mask"][begin:], before[begin:])


def test_where_positions_are_not_known_the_mask_stays():
    """At capture."""
    it, mask = updater(), torch.ones(200, dtype=torch.bool)
    for spec in (EagleVerifyInput(4, mask), EagleVerifyInput(4, mask, torch.empty(0, dtype=torch.long))):
        assert update(it, spec, [1, 1], [Wrapper(), Wrapper()]) == 1 and it.plan["custom_mask"] is mask
        assert it.plan["window_left"] == WINDOW + DRAFT - 1, "what is captured with one window is replayed with it"


def test_window_layers_have_a_mask_of_their_own_in_graphs():
    it, shared = updater(), torch.zeros(4096, dtype=torch.uint8)
    it.attn_backend.cuda_graph_custom_mask = shared
    some, others = ([Wrapper(shared), Wrapper(shared)] for _ in range(2))
    for _ in range(2):
        for wrappers in (some, others):
            update(it, input_of([30, 3]), [30, 3], wrappers)
    own = some[0]._custom_mask_buf
    assert own is others[0]._custom_mask_buf is not shared and len(own) == 2048
    assert own.data_ptr() == shared[2048:].data_ptr(), "no memory of its own"
    assert some[1]._custom_mask_buf is others[1]._custom_mask_buf is shared
    it.attn_backend.cuda_graph_custom_mask = later = torch.zeros(8192, dtype=torch.uint8)
    wrappers = [Wrapper(later), Wrapper(later)]
    update(it, input_of([30, 3]), [30, 3], wrappers)
    assert len(wrappers[0]._custom_mask_buf) == 4096 and some[0]._custom_mask_buf is own


LAST = WINDOW + 1 - DRAFT  # the most tokens behind which a request's last drafted token sees all of them


@pytest.mark.parametrize("kind", [input_of, lambda cached: EagleVerifyInput()])
def test_up_to_the_window_the_engine_plans(kind):
    """Its plan is right there. The next batch is planned as if there had been none before."""
    it, wrappers = updater(), [Wrapper(), Wrapper()]
    for lens in ([LAST, 1], [LAST]):
        assert update(it, kind(lens), lens, wrappers, known=True) == 0 and "window_left" not in it.plan
    assert update(it, kind([LAST + 1, 1]), [LAST + 1, 1], wrappers, known=True) == 1 and "window_left" in it.plan
    assert update(it, kind([LAST]), [LAST], wrappers, known=True) == 0


def test_up_to_the_window_draft_extend_is_planned_by_the_engine():
    """Its new tokens are among those that are counted."""
    it, wrappers = updater(), [Wrapper(), Wrapper()]
    assert update(it, EagleDraftExtendInput(), [WINDOW, 3], wrappers, known=True) == 0
    assert update(it, EagleDraftExtendInput(), [WINDOW + 1, 3], wrappers, known=True) == 1


@pytest.mark.parametrize("lens", [[1], [LAST]])
def test_a_graph_is_captured_with_the_window_and_replayed_without_a_correction(lens):
    it, shared = updater(), torch.zeros(4096, dtype=torch.uint8)
    it.attn_backend.cuda_graph_custom_mask = shared
    wrappers = [Wrapper(shared), Wrapper(shared)]
    assert update(it, input_of([1]), [1], wrappers, known=True) == 0 and "window_left" in it.plan
    assert update(it, input_of(lens), lens, wrappers, known=True) == 0 and wrappers[0]._custom_mask_buf is not shared
    assert update(it, input_of([30]), [30], wrappers, known=True) == 1


def fail(it, spec_info, seq_lens, wrappers, state):
    made = one_call.wrapper(UPDATE, Updater.update_sliding_window, state)
    made.function(it, seq_lens, None, wrappers, spec_info, None)
    assert not state.armed and "nvcc not found" in state.reason and not state.counters.corrections


def test_a_call_of_flashinfer_is_its_own_but_for_the_window():
    it, wrappers = updater(), [Wrapper(), Wrapper()]
    assert update(it, input_of([30, 3]), [30, 3], wrappers) == 1 and "forward" in vars(wrappers[0])
    assert wrappers[0].forward("q", causal=True) == -1
    with pytest.raises(TypeError, match=r"Wrapper\.forward\(\) missing .* 'causal'"):
        wrappers[0].forward("q", window_left=WINDOW)


def test_a_graph_that_was_captured_keeps_its_mask_where_a_later_plan_fails():
    it, shared = updater(), torch.zeros(4096, dtype=torch.uint8)
    it.attn_backend.cuda_graph_custom_mask = shared
    wrappers, state = [Wrapper(shared), Wrapper(shared)], FixState(FIX)
    update(it, input_of([1]), [1], wrappers)
    captured, wrappers[0].refuses = wrappers[0]._custom_mask_buf, True
    fail(it, input_of([30]), [30], wrappers, state)
    assert wrappers[0]._custom_mask_buf is captured is not shared
