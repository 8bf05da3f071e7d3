"""sglang.hybrid-chunk-metadata without an engine: which backends get the method, whom it calls, and what is counted."""

from __future__ import annotations

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.hybrid_chunk_metadata.fix import FIX
from tests.support import one_call

INIT, INIT_LINEAR = FIX.targets


class Attends:
    def __init__(self):
        self.planned = []

    def init_mha_chunk_metadata(self, forward_batch, disable_flashinfer_ragged=False):
        self.planned.append((forward_batch, disable_flashinfer_ragged))
        return "planned"


class TakesTheBatchAlone:
    planned = ()

    def init_mha_chunk_metadata(self, forward_batch):
        self.planned = [(forward_batch, "alone")]
        return "planned"


class Hybrid:
    def __init__(self, model_runner, prefill_backend, decode_backend):
        self.prefill_backend, self.decode_backend = prefill_backend, decode_backend


class HybridLinear:
    def __init__(self, full_attn_backend, linear_attn_backend, full_attn_layers):
        self.attn_backend_list = [full_attn_backend, linear_attn_backend]


class HybridOfLaterReleases(Hybrid):
    def init_mha_chunk_metadata(self, forward_batch):
        return "the engine's"


def made(kind, *args):
    """(a hybrid backend, the state of the fix)"""
    instance, state = object.__new__(kind), FixState(FIX)
    one_call.run(INIT_LINEAR if kind is HybridLinear else INIT, kind.__init__, state, instance, *args)
    return instance, state


@pytest.mark.parametrize("attends", [Attends, TakesTheBatchAlone])
@pytest.mark.parametrize("kind", [Hybrid, HybridLinear])
def test_the_backend_that_attends_plans(kind, attends):
    plans = attends()
    args = ("runner", plans, object()) if kind is Hybrid else (plans, object(), [0])
    hybrid, state = made(kind, *args)
    assert state.counters.corrections == 0, "nothing was planned yet"
    assert hybrid.init_mha_chunk_metadata("batch") == "planned"
    assert plans.planned[0][0] == "batch" and state.counters.corrections == 1


def test_an_argument_is_handed_over():
    plans = Attends()
    made(Hybrid, "runner", plans, object())[0].init_mha_chunk_metadata("batch", disable_flashinfer_ragged=True)
    assert plans.planned == [("batch", True)]


def test_one_behind_the_other():
    plans = Attends()
    linear, inner = made(HybridLinear, plans, object(), [0])
    split, outer = made(Hybrid, "runner", linear, object())
    assert split.init_mha_chunk_metadata("batch", False) == "planned" and len(plans.planned) == 1
    assert (inner.counters.corrections, outer.counters.corrections) == (1, 0), "one plan is one correction"


def test_a_backend_that_plans_nothing_stays_without():
    assert not hasattr(made(Hybrid, "runner", object(), Attends())[0], "init_mha_chunk_metadata")


def test_the_engines_own_method_stays():
    hybrid, state = made(HybridOfLaterReleases, "runner", Attends(), object())
    assert hybrid.init_mha_chunk_metadata("batch") == "the engine's" and not state.counters.corrections


@pytest.mark.parametrize("error", [ValueError("no compiler"), MemoryError("no compiler")])
def test_a_plan_that_fails_gives_the_fix_up(error):
    """The engine goes on without a plan, as it does where the hybrid backend has no such method."""

    class Fails:
        def init_mha_chunk_metadata(self, forward_batch):
            raise error

    hybrid, state = made(Hybrid, "runner", Fails(), object())
    assert hybrid.init_mha_chunk_metadata("batch") is None
    assert state.state == "failed" and "no compiler" in state.reason and not state.counters.corrections


def test_a_fix_that_is_disarmed_plans_nothing():
    plans = Attends()
    hybrid, state = made(Hybrid, "runner", plans, object())
    state.armed = False
    assert hybrid.init_mha_chunk_metadata("batch") is None and not plans.planned


class TRTLLMMLABackend(Attends):
    """Its name is what tells it."""


class Heir(TRTLLMMLABackend):
    pass


@pytest.mark.parametrize("attends", [TRTLLMMLABackend, Heir])
def test_a_backend_with_a_kernel_of_its_own_is_left_alone(attends):
    split, _ = made(Hybrid, "runner", attends(), object())
    linear, _ = made(HybridLinear, attends(), object(), [0])
    around, _ = made(Hybrid, "runner", linear, object())
    assert not any("init_mha_chunk_metadata" in vars(one) for one in (split, linear, around))


class LinearOfLaterReleases(HybridLinear):
    def init_mha_chunk_metadata(self, forward_batch, disable_flashinfer_ragged=False):
        return self.attn_backend_list[0].init_mha_chunk_metadata(forward_batch, disable_flashinfer_ragged)


def test_a_backend_with_a_kernel_of_its_own_is_seen_behind_one_that_hands_over_by_itself():
    linear = LinearOfLaterReleases(TRTLLMMLABackend(), object(), [0])
    assert "init_mha_chunk_metadata" not in vars(made(Hybrid, "runner", linear, object())[0])
