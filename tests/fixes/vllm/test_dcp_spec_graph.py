"""vllm.dcp-spec-graph without an engine: which backends are found, and what the engine is told of them."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dcp_spec_graph import wrap
from attnfix.patches.vllm.dcp_spec_graph.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "resolve_cudagraph_mode_and_sizes")


class Support(Enum):
    ALWAYS, UNIFORM_BATCH, UNIFORM_SINGLE_TOKEN_DECODE, NEVER = 3, 2, 1, 0


class MLACommonMetadataBuilder:
    def __init__(self, spec=None, supports_dcp_with_varlen=False):
        self.threshold = 4 if supports_dcp_with_varlen else 1

    @classmethod
    def get_cudagraph_support(cls, vllm_config, kv_cache_spec):
        return cls.support


class OneToken(MLACommonMetadataBuilder):
    support = Support.UNIFORM_BATCH

    def __init__(self):
        super().__init__("spec")


class Inherits(MLACommonMetadataBuilder):
    support = Support.UNIFORM_BATCH


class Several(MLACommonMetadataBuilder):
    support = Support.UNIFORM_BATCH

    def __init__(self):
        super().__init__("spec", supports_dcp_with_varlen=len("interleave") > 1)


class Never(OneToken):
    support = Support.NEVER


class Sparse:
    support = Support.UNIFORM_BATCH


for builder in (OneToken, Inherits, Several, Never, Sparse):
    builder.__module__ = "vllm.v1.attention.backends.mla.some"


class Foreign(OneToken):
    """Of a plugin: what its constructor does later nobody has read."""


def backend(builder):
    return type(f"Backend{builder.__name__}", (), {"get_builder_cls": staticmethod(lambda: builder)})


def layer(builder, dcp=True):
    impl = SimpleNamespace(need_to_return_lse_for_decode=dcp)
    return SimpleNamespace(impl=impl, get_attn_backend=lambda: backend(builder))


def config(*layers, full=True, mode=True):
    context = {str(at): one for at, one in enumerate((SimpleNamespace(), *layers))}  # one without an impl, as Mamba's
    mode = SimpleNamespace(has_full_cudagraphs=lambda: full) if mode else None
    return SimpleNamespace(cudagraph_mode=mode, static_forward_context=context)


def resolve(self, min_cg_support, min_cg_attn_backend, uniform_decode_query_len=1, use_v2_model_runner=False):
    return min_cg_support, min_cg_attn_backend


def decide(instance, support=Support.UNIFORM_BATCH, tokens=3):
    """(support and backend that the engine resolves with, corrections)"""
    state = FixState(FIX)
    state.fired = True
    return one_call.run(TARGET, resolve, state, instance, support, "stock", tokens), state.counters.corrections


@pytest.mark.parametrize("builder", [OneToken, Inherits])
@pytest.mark.parametrize("support", [Support.UNIFORM_BATCH, Support.ALWAYS])
def test_a_builder_of_one_token_has_graphs_of_one(builder, support):
    found = decide(config(layer(Several), layer(builder)), support)
    assert found == ((Support.UNIFORM_SINGLE_TOKEN_DECODE, f"Backend{builder.__name__}"), 1)


@pytest.mark.parametrize("builder", [Several, Sparse, Foreign])
def test_other_builders_are_left_alone(builder):
    assert decide(config(layer(builder))) == ((Support.UNIFORM_BATCH, "stock"), 0)


@pytest.mark.parametrize("support", [Support.UNIFORM_SINGLE_TOKEN_DECODE, Support.NEVER])
def test_what_has_no_such_graphs_stays(support):
    assert decide(config(layer(OneToken)), support) == ((support, "stock"), 0)


@pytest.mark.parametrize(
    "instance, tokens",
    [(config(layer(OneToken, dcp=False)), 3), (config(layer(OneToken)), 1), (config(layer(OneToken), full=False), 3),
     (config(layer(OneToken), mode=False), 3)],
    ids=["no DCP", "no drafts", "piecewise graphs", "no mode"],
)  # fmt: skip
def test_without_dcp_drafts_or_full_graphs_nothing_is_told(instance, tokens):
    assert decide(instance, tokens=tokens) == ((Support.UNIFORM_BATCH, "stock"), 0)


# Up to 0.19.1 the V1 runner decides


def check_and_update_cudagraph_mode(self, attention_backends, kv_cache_groups):
    return [
        {(one.__name__, one.get_builder_cls().get_cudagraph_support(None, "spec")) for one in group}
        for group in attention_backends
    ]


def runner(*builders, drafts=2):
    state = FixState(FIX)
    state.fired = True
    found = decided(state, builders, drafts)
    assert state.armed
    return found, state.counters.corrections


def decided(state, builders, drafts=2):
    instance = SimpleNamespace(compilation_config=config(*map(layer, builders)), uniform_decode_query_len=1 + drafts)
    run = one_call.wrapper(TARGET, check_and_update_cudagraph_mode, state).function
    return run(instance, [set(map(backend, builders))], ["group"])


def test_the_runner_is_told_of_that_backend_alone():
    found, fired = runner(OneToken, Several)
    assert fired == 1
    assert found == [{("BackendOneToken", Support.UNIFORM_SINGLE_TOKEN_DECODE), ("BackendSeveral", Support.UNIFORM_BATCH)}]


def test_the_runner_is_told_nothing_without_drafts():
    assert runner(OneToken, drafts=0) == ([{("BackendOneToken", Support.UNIFORM_BATCH)}], 0)


def test_a_level_is_never_raised():
    assert runner(Never) == ([{("BackendNever", Support.NEVER)}], 1)


def test_an_error_of_the_builder_is_the_engines():
    class Raises(Inherits):
        @classmethod
        def get_cudagraph_support(cls, vllm_config, kv_cache_spec):
            raise KeyError("the engine's")

    Raises.__module__ = Inherits.__module__
    state = FixState(FIX)
    with pytest.raises(KeyError, match="the engine's"):
        decided(state, [Raises])
    assert state.armed


def test_where_the_level_cannot_be_told_the_engines_stays(monkeypatch):
    def fails(support):
        raise AttributeError("no such level")

    monkeypatch.setattr(wrap, "of_one_token", fails)
    state = FixState(FIX)
    assert decided(state, [OneToken]) == [{("BackendOneToken", Support.UNIFORM_BATCH)}]
    assert state.state == "failed" and "no such level" in state.reason and state.counters.corrections == 0
