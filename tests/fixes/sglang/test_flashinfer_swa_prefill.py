"""sglang.flashinfer-swa-prefill without an engine: what is learnt of a backend, which batches run in the other mode, and that
all is as it was afterwards."""

from __future__ import annotations

from enum import Enum, auto
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.flashinfer_swa_prefill import wrap
from attnfix.patches.sglang.flashinfer_swa_prefill.fix import FIX
from attnfix.patches.shared.attribute import attribute
from tests.support import one_call
from tests.support.no_sync import NoSync

WINDOW = 8
INIT, METADATA = FIX.targets
Mode = Enum("Mode", "EXTEND DECODE MIXED IDLE TARGET_VERIFY DRAFT_EXTEND DRAFT_EXTEND_V2 PREBUILT SPLIT_PREFILL DLLM_EXTEND")
Kind = Enum("Kind", {"DECODER": "decoder", "DECODER_BIDIRECTIONAL": "decoder_bidirectional", "ENCODER_ONLY": "encoder_only"})


class WrapperDispatch(Enum):
    SLIDING_WINDOW = auto()
    CROSS_ATTENTION = auto()


class Wrapper:
    def begin_forward(self, *args, **kwargs):
        return kwargs


class FlashInferAttnBackend:
    """Notes in which mode a batch was planned, and with what."""

    def __init__(self, error=None, **modes):
        self.is_multimodal, self.dispatch_reason, self.error = False, WrapperDispatch.SLIDING_WINDOW, error
        self.prefill_wrappers_paged = [Wrapper(), Wrapper()]
        self.__dict__.update(modes)

    def init_forward_metadata(self, forward_batch):
        if self.error:
            raise self.error
        self.seen = {name: value for name, value in vars(self).items() if name in ("is_multimodal", "use_paged")}
        self.plans = [wrapper.begin_forward("indptr", q_data_type="half") for wrapper in self.prefill_wrappers_paged]


class Heir(FlashInferAttnBackend):
    pass


class Updater:
    def __init__(self, model_runner, attn_backend):
        self.sliding_window_size = model_runner.sliding_window_size

    def call_begin_forward(self, wrapper_paged, use_ragged):
        window_left = -1
        return window_left


class UpdaterFrom0516(Updater):
    def call_begin_forward(self, wrapper_paged, use_ragged, window_left=-1):
        pass


class Layer(torch.nn.Module):
    def __init__(self, size, kind=Kind.DECODER):
        super().__init__()
        self.sliding_window_size, self.attn_type = size, kind


GEMMA = (Layer(WINDOW), Layer(-1))


def learn(backend, release="0.5.10", kind=Updater, layers=GEMMA):
    """The fix's state, once the backend has its updater."""
    state = FixState(FIX)
    state.release = release
    runner = SimpleNamespace(model=torch.nn.Sequential(torch.nn.Linear(2, 2), *layers), sliding_window_size=WINDOW)
    one_call.run(INIT, kind.__init__, state, object.__new__(kind), runner, backend)
    assert state.counters.corrections == 0
    return getattr(backend, wrap.LEARNT, None)


def plan(backend, cached, new, mode="EXTEND", sampling_info=True):
    """Corrections of a batch's plan. Nothing waits for a GPU, and the backend is as it was."""
    before, state = dict(vars(backend)), FixState(FIX)
    batch = SimpleNamespace(
        forward_mode=Mode[mode], extend_prefix_lens_cpu=cached, extend_seq_lens_cpu=new, sampling_info=sampling_info
    )
    try:
        with NoSync():
            one_call.run(METADATA, FlashInferAttnBackend.init_forward_metadata, state, backend, batch)
    finally:
        after = {name: value for name, value in vars(backend).items() if name not in ("seen", "plans")}
        assert after == {name: value for name, value in before.items() if name not in ("seen", "plans")}
        assert not any(vars(wrapper) for wrapper in backend.prefill_wrappers_paged)
    return state.counters.corrections


@pytest.mark.parametrize(
    "release, kind, learnt",
    [("0.5.1", Updater, (False, False)), ("0.5.15.post1", Updater, (False, False)), ("0.5.16", UpdaterFrom0516, (True, False)),
     ("0.5.20", UpdaterFrom0516, (True, False)), ("0.5.21", UpdaterFrom0516, (True, True))],
)  # fmt: skip
def test_what_a_release_plans(release, kind, learnt):
    assert learn(FlashInferAttnBackend(), release, kind) == (WINDOW, *learnt)


@pytest.mark.parametrize(
    "backend, layers",
    [(Heir(), GEMMA), (FlashInferAttnBackend(dispatch_reason=WrapperDispatch.CROSS_ATTENTION), GEMMA),
     (FlashInferAttnBackend(dispatch_reason=None), GEMMA), (FlashInferAttnBackend(), (*GEMMA, Layer(-1, Kind.ENCODER_ONLY))),
     (FlashInferAttnBackend(), (*GEMMA, Layer(WINDOW + 1))), (FlashInferAttnBackend(), (*GEMMA, Layer(WINDOW - 1)))],
    ids=["heir", "cross attention", "no window", "bidirectional layer", "a wider window", "a narrower window"],
)  # fmt: skip
def test_other_backends_and_models_are_left_alone(backend, layers):
    assert learn(backend, layers=layers) is None
    assert plan(backend, [0], [10 * WINDOW]) == 0


def test_layers_of_gemma_3_are_causal_on_flashinfer():
    """Releases up to 0.5.16 call all of them bidirectional; FlashInfer's backend masks them causally all the same."""
    assert learn(FlashInferAttnBackend(), layers=(Layer(WINDOW, Kind.DECODER_BIDIRECTIONAL), Layer(-1)))


def test_a_backend_made_before_the_fix_stood_is_left_alone():
    assert plan(FlashInferAttnBackend(), [0], [10 * WINDOW]) == 0


#: cached, new -> whether it is wrong in the ragged mode up to 0.5.20, from 0.5.21 on, in paged-only mode up to 0.5.15.post1
BATCHES = [
    ([0, 0], [3, WINDOW + 1], False, False, False),
    ([0, 0], [3, WINDOW + 2], True, True, True),
    ([1, 0], [1, 1], True, False, False),
    ([50, 3], [1, 2], True, False, False),
    ([50, 3], [2, 2], True, False, True),
    ([WINDOW, 0], [2, 2], True, False, True),
    ([WINDOW - 1, 0], [2, 2], True, False, False),
    ([50], [WINDOW + 2], True, True, True),
]


@pytest.mark.parametrize("cached, new, ragged, ragged_later, paged", BATCHES)
@pytest.mark.parametrize("mode", ["EXTEND", "MIXED", "SPLIT_PREFILL"])
def test_a_batch_is_corrected_where_it_would_be_wrong(cached, new, ragged, ragged_later, paged, mode):
    former, later = FlashInferAttnBackend(), FlashInferAttnBackend(use_paged=False)
    learn(former), learn(later, "0.5.21", UpdaterFrom0516)
    assert plan(former, cached, new, mode) == ragged
    assert plan(later, cached, new, mode) == ragged_later
    for own in ("is_multimodal", "enable_deterministic", "use_paged"):
        former, later = (FlashInferAttnBackend(**{own: True}) for _ in range(2))
        learn(former), learn(later, "0.5.16", UpdaterFrom0516)
        assert plan(former, cached, new, mode) == paged and former.seen.get(own, True)
        assert plan(later, cached, new, mode) == 0


def test_the_switch_of_the_release_is_shown_and_the_window_layers_plan_gets_the_window():
    for release, given, seen in (("0.5.10", {}, {"is_multimodal": True}),
                                 ("0.5.11", {"use_paged": False}, {"is_multimodal": False, "use_paged": True})):  # fmt: skip
        backend = FlashInferAttnBackend(**given)
        learn(backend, release)
        assert plan(backend, [0], [50]) == 1 and backend.seen == seen
        assert backend.plans == [{"q_data_type": "half", "window_left": WINDOW}, {"q_data_type": "half"}]


def test_batches_that_the_engine_captures_prefill_graphs_with_are_planned_right_and_not_counted():
    backend = FlashInferAttnBackend(use_paged=False)
    learn(backend)
    assert plan(backend, [0], [50], sampling_info=None) == 0 and backend.seen["use_paged"]
    assert backend.plans[0] == {"q_data_type": "half", "window_left": WINDOW}


def test_a_release_that_plans_the_window_plans_by_itself():
    backend = FlashInferAttnBackend(use_paged=False)
    learn(backend, "0.5.16", UpdaterFrom0516)
    assert plan(backend, [0], [50]) == 1 and backend.seen["use_paged"]
    assert backend.plans == [{"q_data_type": "half"}] * 2


@pytest.mark.parametrize(
    "mode", ["DECODE", "IDLE", "TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2", "PREBUILT", "DLLM_EXTEND"]
)
def test_other_modes_are_left_alone(mode):
    backend = FlashInferAttnBackend()
    learn(backend)
    assert plan(backend, [50], [50], mode) == 0
    assert plan(backend, None, None, mode) == 0


@pytest.mark.parametrize(
    "own", [{"enable_mis": True}, {"multi_item_scoring_delimiter": 0}, {"is_dllm_model": True},
            {"prefill_uses_dequant_workspace": True}],
)  # fmt: skip
def test_backends_with_masks_or_caches_of_their_own_are_left_alone(own):
    backend = FlashInferAttnBackend(**own)
    learn(backend)
    assert plan(backend, [50], [50]) == 0


def test_lengths_that_the_host_does_not_have_are_left_alone():
    backend = FlashInferAttnBackend()
    learn(backend)
    assert plan(backend, None, [50]) == plan(backend, [50], None) == 0


def test_an_error_of_the_engine_passes_and_the_switch_is_back():
    backend = FlashInferAttnBackend(error=MemoryError())
    learn(backend)
    with pytest.raises(MemoryError):
        plan(backend, [0], [50])
    assert not backend.is_multimodal


def test_a_plan_that_someone_replaced_is_kept():
    wrapper = Wrapper()
    wrapper.begin_forward = mine = lambda **kwargs: kwargs
    with attribute(wrapper, "begin_forward", wrap.with_window(wrapper.begin_forward, WINDOW)):
        assert wrapper.begin_forward(a=1) == {"a": 1, "window_left": WINDOW}
        assert wrapper.begin_forward(window_left=3) == {"window_left": 3}
    assert wrapper.begin_forward is mine
