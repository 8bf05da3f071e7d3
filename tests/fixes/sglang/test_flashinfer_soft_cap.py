"""sglang.flashinfer-soft-cap without an engine: what cap a model has, which plans get it, and that all is as it was then."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.flashinfer_soft_cap import wrap
from attnfix.patches.sglang.flashinfer_soft_cap.fix import FIX
from tests.support import one_call

INIT_DECODE, INIT_PREFILL, DECODE, PREFILL = FIX.targets
CAP = 50.0


class Wrapper:
    """Notes its plans; one of a FlashInfer without such a kernel refuses those with a cap."""

    def __init__(self, backend="fa2", refuses=False):
        self._backend, self.refuses, self.plans = backend, refuses, []

    def begin_forward(self, *args, **kwargs):
        if self.refuses and "logits_soft_cap" in kwargs:
            raise RuntimeError("nvcc not found")
        self.plans.append(kwargs)


class FlashInferAttnBackend:
    prefill_wrappers_paged = decode_wrappers = ()


class Heir(FlashInferAttnBackend):
    pass


def fast_decode_plan(wrapper, *args, **kwargs):
    wrapper.plans.append({"fast": True, **kwargs})


def fast_prefill_plan(wrapper, indptr, *, q_data_type):
    wrapper.plans.append({"fast": True})


class Updater:
    def __init__(self, model_runner, attn_backend):
        pass

    def decode(self, wrapper, kv_indptr):
        fast = hasattr(wrapper.begin_forward, "func") and wrapper.begin_forward.func == fast_decode_plan
        wrapper.begin_forward(kv_indptr, **({"global_override_indptr_cpu": 1} if fast else {}))

    def prefill(self, wrapper_ragged, wrapper_paged, use_ragged):
        if use_ragged:
            wrapper_ragged.begin_forward("indptr", q_data_type="half")
        fast = hasattr(wrapper_paged.begin_forward, "func") and wrapper_paged.begin_forward.func is fast_prefill_plan
        assert fast == ("begin_forward" in vars(wrapper_paged) and "fast" in str(wrapper_paged.begin_forward))
        wrapper_paged.begin_forward("indptr", q_data_type="half")


def layer(cap, method="tanh", **other):
    return SimpleNamespace(logit_cap=cap, logit_capping_method=method, sliding_window_size=-1, **other)


def updater(*layers, backend=FlashInferAttnBackend):
    found = object.__new__(Updater)
    runner = SimpleNamespace(model=SimpleNamespace(modules=lambda: [SimpleNamespace(), *layers]))
    for target in (INIT_DECODE, INIT_PREFILL):
        one_call.run(target, Updater.__init__, FixState(FIX), found, runner, backend())
    return found


def plan(it, *wrappers, use_ragged=False):
    """Corrections of a plan. The wrappers are as they were."""
    state, before = FixState(FIX), [dict(vars(wrapper)) for wrapper in wrappers]
    if len(wrappers) == 1:
        one_call.run(DECODE, Updater.decode, state, it, *wrappers, "indptr")
    else:
        one_call.run(PREFILL, Updater.prefill, state, it, *wrappers, use_ragged)
    assert [dict(vars(wrapper)) for wrapper in wrappers] == before
    return state.counters.corrections


def test_every_plan_gets_the_cap():
    it, decode, ragged, paged = updater(layer(CAP), layer(CAP)), Wrapper(), Wrapper(), Wrapper()
    assert plan(it, decode) == plan(it, ragged, paged, use_ragged=True) == 1
    assert decode.plans == [{"logits_soft_cap": CAP}]
    assert ragged.plans == paged.plans == [{"q_data_type": "half", "logits_soft_cap": CAP}]


@pytest.mark.parametrize(
    "layers",
    [
        (),
        (layer(0.0), layer(0.0)),
        (layer(None),),
        (layer(CAP), layer(0.0)),
        (layer(30.0), layer(CAP)),
        (layer(CAP, "sigmoid"),),
    ],
    ids=["no layers", "no cap", "null", "some layers", "two caps", "another function"],
)
def test_other_models_are_left_alone(layers):
    it, decode, ragged, paged = updater(*layers), Wrapper(), Wrapper(), Wrapper()
    assert plan(it, decode) == plan(it, ragged, paged, use_ragged=True) == 0
    assert decode.plans == [{}] and ragged.plans == paged.plans == [{"q_data_type": "half"}]


def test_an_updater_made_before_the_fix_stood_is_left_alone():
    decode = Wrapper()
    assert plan(object.__new__(Updater), decode) == 0 and decode.plans == [{}]


@pytest.mark.parametrize("fast", [fast_decode_plan, fast_prefill_plan])
def test_a_captured_graph_is_planned_as_the_engine_does(fast):
    """It looks which function plans. The kernel is that of the capture."""
    it, wrapper = updater(layer(CAP)), Wrapper()
    wrapper.begin_forward = partial(fast, wrapper)
    assert plan(it, *([wrapper] if fast is fast_decode_plan else [Wrapper(), wrapper])) == 0
    assert wrapper.plans[0]["fast"] and "logits_soft_cap" not in wrapper.plans[0]


def test_new_tokens_and_cached_ones_have_both_a_cap_or_neither():
    """Beside a captured graph, which does not happen; and CUTLASS, which has no cap."""
    ragged, paged = Wrapper(), Wrapper()
    paged.begin_forward = partial(fast_prefill_plan, paged)
    assert plan(updater(layer(CAP)), ragged, paged, use_ragged=True) == 0
    assert "logits_soft_cap" not in ragged.plans[0] and paged.plans == [{"fast": True}]
    ragged, paged = Wrapper("cutlass"), Wrapper()
    assert plan(updater(layer(CAP)), ragged, paged, use_ragged=True) == 0
    assert ragged.plans == paged.plans == [{"q_data_type": "half"}]
    assert plan(updater(layer(CAP)), ragged, paged, use_ragged=False) == 1, "paged-only mode does not use it"
    assert paged.plans[1]["logits_soft_cap"] == CAP


@pytest.mark.parametrize("ragged, paged", [(True, False), (False, True)])
def test_where_one_plan_has_no_such_kernel_neither_is_capped(ragged, paged):
    it, state, wrappers = updater(layer(CAP)), FixState(FIX), (Wrapper(refuses=ragged), Wrapper(refuses=paged))
    one_call.wrapper(PREFILL, Updater.prefill, state).function(it, *wrappers, True)
    assert not state.armed and all("logits_soft_cap" not in wrapper.plans[-1] for wrapper in wrappers)


def test_an_heir_of_the_backend_is_left_alone():
    wrapper = Wrapper()
    assert plan(updater(layer(CAP), backend=Heir), wrapper) == 0 and wrapper.plans == [{}]


def test_a_cap_that_the_engine_names_stands():
    wrapper = Wrapper()
    wrap.with_cap(wrapper.begin_forward, CAP)(logits_soft_cap=30.0)
    assert wrapper.plans == [{"logits_soft_cap": 30.0}]
