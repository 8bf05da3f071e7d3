"""sglang.hybrid-chunk-metadata: which backends get a plan and how often it is counted."""

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


#: The bits that the model gets, what FlashInfer planned for them, and how often the fix counted. Real: the model's methods, the
#: hybrid backends by their own constructors, the backends that attend. FlashInfer's and TRT-LLM's kernels are emulated
HEAD = """
from attnfix.prove import side
side._ease_engine("sglang")
import math
import attnfix
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.sglang.chunked_prefix import FLASHINFER, TRTLLM
from attnfix.patches.sglang.hybrid_chunk_metadata.proof import _LINEAR, Proof

it, plans = Proof(), []
it.prepare()
real = emulators.RaggedWrapper.begin_forward

def begin_forward(self, *args, **kwargs):
    plans.append(1)
    return real(self, *args, **kwargs)

emulators.RaggedWrapper.begin_forward = begin_forward

def corrections():
    rows = [row for row in attnfix.status() if row["fix"] == "sglang.hybrid-chunk-metadata"]
    return sum(row["counters"]["corrections"] for row in rows)

def prefill(hybrid, module=TRTLLM, kind=None):
    def behind(backend, batch):
        if kind is not None:
            backend.__class__ = kind(type(backend))
        return hybrid(backend, batch)

    it.use(math.e)
    plans.clear()
    before = corrections()
    try:
        one = observe(*it.outputs(3, [35, 33, 40, 36], [3, 5, 2, 6], module, behind=behind))
        found = [one.error < 0.02, one.bits]
    except (IndexError, AttributeError, TypeError) as error:  # no wrapper, none planned, or an engine's own wrong call
        found = [False, str(error)]
    return [*found, len(plans), corrections() - before]

def nested(backend, batch):
    inner = it._with_linear(backend, batch)
    if not hasattr(type(inner), "data_type"):  # later releases hand it on by themselves
        inner.data_type = backend.data_type
    return it._split(inner, batch)

hybrids = {"split": it._split}
if _LINEAR in it.engine:
    hybrids |= {"linear": it._with_linear, "nested": nested}
"""
OWN_KERNEL = """
def heir(kind):
    return type("TokenspeedMLABackend", (kind,), {})

answer({name: prefill(hybrid, kind=kind) for name, hybrid in hybrids.items() for kind in (None, heir)})
"""
FLASHINFERS = """
answer({name: prefill(hybrid, FLASHINFER) for name, hybrid in hybrids.items()})
"""
NO_MODULE = """
real_plan = emulators.RaggedWrapper.begin_forward

def begin_forward(self, *args, **kwargs):
    raise RuntimeError("Ninja is not installed")

emulators.RaggedWrapper.begin_forward = begin_forward
row = lambda: next(row for row in attnfix.status() if row["fix"] == "sglang.hybrid-chunk-metadata")
prefill(it._split, FLASHINFER)
answer([row()["state"], "Ninja" in row()["reason"], row()["counters"]["corrections"]])
"""
ALONE = {"ATTNFIX_SGLANG_ZERO_KV_ROWS": "0", "ATTNFIX_SGLANG_LSE_LOG_BASE": "0"}
AFFECTED = ["0.5.3", "0.5.8", "0.5.12.post1", "0.5.13", "0.5.16"]


@pytest.mark.parametrize("release", AFFECTED)
def test_a_backend_that_attends_by_its_own_kernel_is_left_alone(engine_fork, release):
    """trtllm_mla and its heirs: right without a plan of FlashInfer's."""
    environment = engine_fork("sglang", release)
    stock = environment.evaluate(HEAD + OWN_KERNEL, **ALONE, ATTNFIX="0")
    assert all(right and not plans for name, (right, _, plans, _) in stock.items() if name == "split")
    assert environment.evaluate(HEAD + OWN_KERNEL, **ALONE) == stock


@pytest.mark.parametrize("release", AFFECTED)
def test_a_plan_that_stock_lacks_is_counted_once(engine_fork, release):
    environment = engine_fork("sglang", release)
    stock = environment.evaluate(HEAD + FLASHINFERS, **ALONE, ATTNFIX="0")
    found = environment.evaluate(HEAD + FLASHINFERS, **ALONE)
    assert all(right for right, *_ in found.values())
    for name, (_, _, plans, counted) in found.items():
        assert plans > 1 and counted == (0 if stock[name][0] else 1), name
    assert not stock["split"][0] and found["split"][-1] == 1


def test_a_plan_that_cannot_be_made_gives_the_fix_up(engine_fork):
    """Stock goes on without a plan, and so does the engine then; the reason is told."""
    found = engine_fork("sglang", "0.5.12.post1").evaluate(HEAD + NO_MODULE, **ALONE)
    assert found == ["failed", True, 0]
