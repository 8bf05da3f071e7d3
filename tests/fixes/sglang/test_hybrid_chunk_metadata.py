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
    split, _ = made(Hybrid, "runner", plans, object())
    assert made(HybridLinear, split, object(), [0])[0].init_mha_chunk_metadata("batch", False) == "planned"


def test_a_backend_that_plans_nothing_stays_without():
    assert not hasattr(made(Hybrid, "runner", object(), Attends())[0], "init_mha_chunk_metadata")


def test_the_engines_own_method_stays():
    hybrid, state = made(HybridOfLaterReleases, "runner", Attends(), object())
    assert hybrid.init_mha_chunk_metadata("batch") == "the engine's" and not state.counters.corrections


def test_an_error_of_the_plan_passes():
    class Fails:
        def init_mha_chunk_metadata(self, forward_batch):
            raise ValueError("the engine's")

    hybrid, state = made(Hybrid, "runner", Fails(), object())
    with pytest.raises(ValueError, match="the engine's"):
        hybrid.init_mha_chunk_metadata("batch")
    assert state.state != "failed"
