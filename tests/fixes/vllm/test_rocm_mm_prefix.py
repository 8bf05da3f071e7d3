"""vllm.rocm-mm-prefix without an engine: which servers get another order of backends."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import INSTALLED, OFF, FixState
from attnfix.patches.vllm.rocm_mm_prefix.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "_get_backend_priorities")
NATIVE, LIBRARY, TRITON, OTHER = ("ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN", "TURBOQUANT")


def chosen(monkeypatch, backends, *, images=True, use_mla=False, use_sparse=False, **config):
    """Names of the backends in the order that the platform gets, the count of corrections, and the state."""

    def get_backend_priorities(use_mla, use_sparse, use_kv_connector=False):
        return [SimpleNamespace(name=name) for name in backends]

    parts = {"kv_transfer_config": None, "speculative_config": None, "attention_config": SimpleNamespace(backend=None)}
    parts |= {"cache_config": SimpleNamespace(cache_dtype="auto")} | config
    config = SimpleNamespace(model_config=SimpleNamespace(is_mm_prefix_lm=images), **parts)
    engine = SimpleNamespace(get_current_vllm_config_or_none=lambda: None if images is None else config)
    monkeypatch.setitem(sys.modules, "vllm.config", engine)
    state = FixState(FIX, INSTALLED, "code of 0.25.1", lambda *event: None)
    got = one_call.run(TARGET, get_backend_priorities, state, use_mla, use_sparse)
    return [backend.name for backend in got], state.counters.corrections, state


@pytest.mark.parametrize(
    "backends, order, corrections",
    [
        ((NATIVE, TRITON, OTHER), [TRITON, NATIVE, OTHER], 1),
        ((LIBRARY, NATIVE, TRITON), [TRITON, LIBRARY, NATIVE], 1),
        ((TRITON, OTHER), [TRITON, OTHER], 0),
        ((NATIVE, OTHER), [NATIVE, OTHER], 0),
        ((), [], 0),
    ],
)
def test_triton_is_tried_first_for_images(monkeypatch, backends, order, corrections):
    assert chosen(monkeypatch, backends)[:2] == (order, corrections)


@pytest.mark.parametrize("more", [{"images": False}, {"images": None}, {"use_mla": True}, {"use_sparse": True}])
def test_other_models_keep_the_order(monkeypatch, more):
    assert chosen(monkeypatch, (NATIVE, TRITON), **more)[:2] == ([NATIVE, TRITON], 0)


@pytest.mark.parametrize(
    "more, why",
    [
        ({"attention_config": SimpleNamespace(backend=NATIVE)}, "named"),
        ({"attention_config": SimpleNamespace(backend=None, backend_per_kind={"sliding": NATIVE})}, "named"),
        ({"kv_transfer_config": SimpleNamespace(kv_connector="NixlConnector")}, "NixlConnector"),
        ({"speculative_config": SimpleNamespace(method="eagle3")}, "drafts"),
        ({"cache_config": SimpleNamespace(cache_dtype="fp8_e4m3")}, "FP8"),
    ],
)
def test_a_server_that_could_be_harmed_stays_as_it_is_and_the_state_says_why(monkeypatch, more, why):
    order, corrections, state = chosen(monkeypatch, (NATIVE, TRITON), **more)
    assert (order, corrections) == ([NATIVE, TRITON], 0)
    assert state.as_dict()["state"] == OFF and why in state.as_dict()["reason"]
