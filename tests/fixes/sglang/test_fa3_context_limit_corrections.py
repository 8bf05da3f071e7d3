"""sglang.fa3-context-limit without an engine: how wide the tables get, and what the model of the kernel reads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.lab.sglang import flash_attention
from attnfix.patches.sglang.fa3_context_limit.fix import FIX
from tests.support import one_call

INIT = one_call.target_of(FIX, "__init__")


class Backend:
    def __init__(self, model_runner, skip_prefill=False):
        vars(self).update(vars(model_runner))


NO_FLAGS = SimpleNamespace()


def made(row=58, flags=NO_FLAGS, **given):
    runner = SimpleNamespace(max_context_len=48, page_size=1, req_to_token=torch.zeros(2, row), server_args=flags, **given)
    backend, state = object.__new__(Backend), FixState(FIX)
    one_call.run(INIT, Backend.__init__, state, backend, runner, False)
    return backend, state.counters.corrections


def test_tables_get_as_wide_as_the_rows():
    backend, corrections = made(speculative_num_draft_tokens=6)
    assert (backend.max_context_len, corrections) == (58, 1) and not hasattr(backend, "max_num_pages")


def test_later_releases_have_the_width_in_pages_too():
    backend, _ = made(speculative_num_draft_tokens=6, max_num_pages=48)
    assert backend.max_num_pages == 58
    runner = SimpleNamespace(max_context_len=48, page_size=4, req_to_token=torch.zeros(2, 58), max_num_pages=12)
    runner.server_args = SimpleNamespace(disable_cuda_graph=False, disaggregation_mode="null")
    runner.speculative_num_draft_tokens = 6
    backend = object.__new__(Backend)
    one_call.run(INIT, Backend.__init__, FixState(FIX), backend, runner, False)
    assert (backend.max_context_len, backend.max_num_pages) == (58, 15)


@pytest.mark.parametrize("given", [{}, {"speculative_num_draft_tokens": None}, {"speculative_num_draft_tokens": 0}])
def test_without_drafts_nothing_changes(given):
    backend, corrections = made(max_num_pages=48, **given)
    assert (backend.max_context_len, backend.max_num_pages, corrections) == (48, 48, 0)


@pytest.mark.parametrize("row", [40, 48])
def test_rows_that_are_no_wider_than_the_context_narrow_nothing(row):
    backend, corrections = made(row=row, speculative_num_draft_tokens=6)
    assert (backend.max_context_len, corrections) == (48, 0)


@pytest.mark.parametrize("mode, width, counted", [("null", 48, 0), ("prefill", 58, 1)])
def test_without_graphs_nothing_changes(mode, width, counted):
    flags = SimpleNamespace(disable_cuda_graph=True, disaggregation_mode=mode)
    backend, corrections = made(flags=flags, speculative_num_draft_tokens=6)
    assert (backend.max_context_len, corrections) == (width, counted)


def graphs(backend):
    return SimpleNamespace(cuda_graph_config=SimpleNamespace(decode=SimpleNamespace(backend=backend)))


@pytest.mark.parametrize("backend, width, counted", [("disabled", 48, 0), ("full", 58, 1)])
def test_from_0_5_14_on_the_backend_of_decode_graphs_says_whether_there_are_any(backend, width, counted, monkeypatch):
    flags = SimpleNamespace(disable_cuda_graph=False, disaggregation_mode="null", **vars(graphs(backend)))
    found, corrections = made(flags=flags, speculative_num_draft_tokens=6)
    assert (found.max_context_len, corrections) == (width, counted)
    monkeypatch.setitem(globals(), "get_exec", lambda: SimpleNamespace(graph=graphs(backend)))  # later, the flags are raw
    for raw in (None, {"prefill": {"backend": "disabled"}}):
        found, corrections = made(flags=SimpleNamespace(cuda_graph_config=raw), speculative_num_draft_tokens=6)
        assert (found.max_context_len, corrections) == (width, counted)


ALONE = {"prefill_attention_backend_str": "fa3", "decode_attention_backend_str": "trtllm_mla"}


@pytest.mark.parametrize(
    "mode, names, layers, counted",
    [("decode", ALONE, False, 0), ("prefill", ALONE, False, 1), ("decode", {}, False, 1), (None, ALONE, False, 1),
     ("decode", ALONE | {"decode_attention_backend_str": "fa3"}, False, 1),
     ("decode", ALONE | {"decode_attention_backend_str": "fa4"}, False, 1),
     ("decode", ALONE | {"is_draft_worker": True}, False, 0), ("decode", ALONE | {"is_draft_worker": True}, True, 1),
     ("decode", ALONE, True, 0)],
)  # fmt: skip
def test_a_backend_that_prefills_alone_sees_no_drafts(mode, names, layers, counted, monkeypatch):
    """The draft model of several layers attends with this backend all the same."""
    flags = SimpleNamespace(enable_multi_layer_eagle=layers, **({"speculative_attention_mode": mode} if mode else {}))
    assert made(flags=flags, speculative_num_draft_tokens=6, **names)[1] == counted
    monkeypatch.setitem(globals(), "get_spec", lambda: flags)
    raw = SimpleNamespace(enable_multi_layer_eagle=layers, speculative_attention_mode="prefill")
    assert made(flags=raw, speculative_num_draft_tokens=6, **names)[1] == counted


DECODES = {"prefill_attention_backend_str": "triton", "decode_attention_backend_str": "fa3"}
DRAFT = {"is_draft_worker": True}


@pytest.mark.parametrize(
    "mode, names, named, counted",
    [("prefill", DECODES, None, 0), ("decode", DECODES, None, 1), (None, DECODES, None, 1),
     ("prefill", DECODES | DRAFT, None, 1), ("prefill", DECODES | DRAFT, "fa3", 1), ("prefill", DECODES | DRAFT, "triton", 0),
     ("decode", ALONE | DRAFT, "fa3", 1), ("prefill", ALONE | DRAFT, None, 1)],
)  # fmt: skip
def test_a_backend_that_decodes_alone_sees_the_drafts_of_a_draft_model(mode, names, named, counted):
    flags = SimpleNamespace(speculative_attention_mode=mode, speculative_draft_attention_backend=named)
    assert made(flags=flags, speculative_num_draft_tokens=6, **names)[1] == counted


@pytest.mark.parametrize("names, counted", [(("triton", "fa3"), 0), (("fa3", "triton"), 1), ((None, "triton"), 1)])
def test_a_runner_that_has_no_names_yet_is_asked_by_its_flags(names, counted):
    flags = SimpleNamespace(speculative_attention_mode="prefill", get_attention_backends=lambda: names)
    assert made(flags=flags, speculative_num_draft_tokens=6)[1] == counted


@pytest.mark.parametrize("both, counted", [("fa3", 1), (None, 1), ("flashinfer", 0)])
def test_two_equal_names_do_not_tell_the_backend_that_is_made(both, counted):
    """Up to 0.5.17; a hierarchical cache makes them equal after the engine has compared them."""
    names = dict.fromkeys(("prefill_attention_backend_str", "decode_attention_backend_str"), "flashinfer")
    flags = SimpleNamespace(speculative_attention_mode="prefill", attention_backend=both)
    assert made(flags=flags, speculative_num_draft_tokens=6, **names)[1] == counted


def test_the_kernel_reads_behind_a_row_and_behind_the_table():
    """Two requests of three tokens over rows of two slots: the first reads the second's, the other what is no slot."""
    memory = torch.tensor([0, 1, 2, 3, 99, 99], dtype=torch.int32)
    cache = torch.randn(4, 1, 1, 8)
    launch = dict(softmax_scale=1.0, causal=True)
    lens, at = torch.tensor([3, 3], dtype=torch.int32), torch.tensor([0, 1, 2], dtype=torch.int32)
    q = torch.randn(2, 1, 8)
    table = memory[:4].view(2, 2)
    out = flash_attention.paged(q, cache, cache, page_table=table, cache_seqlens=lens, cu_seqlens_q=at, **launch)
    assert out[1].isnan().all()
    right = torch.softmax((cache[:3, 0, 0] @ q[0, 0]), 0) @ cache[:3, 0, 0]
    torch.testing.assert_close(out[0, 0], right)
