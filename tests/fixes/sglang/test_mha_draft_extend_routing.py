"""sglang.mha-draft-extend-routing: which batch the engine's function sees, and which code of real releases is known."""

from __future__ import annotations

import ast
from enum import IntEnum, auto
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnfix.compat.gate import judge, ledger, source_files
from attnfix.compat.gate.digest import find
from attnfix.compat.releases import fetch
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mha_draft_extend_routing import edits
from attnfix.patches.sglang.mha_draft_extend_routing.fix import FIX
from attnfix.prove import edited_release
from tests.support import one_call
from tests.support.no_sync import NoSync


class Mode(IntEnum):
    """As the engine's own: an IntEnum with predicates."""

    EXTEND = auto()
    DECODE = auto()
    IDLE = auto()
    TARGET_VERIFY = auto()
    DRAFT_EXTEND = auto()
    DRAFT_EXTEND_V2 = auto()

    def is_target_verify(self):
        return self == Mode.TARGET_VERIFY

    def is_draft_extend_v2(self):
        return self == Mode.DRAFT_EXTEND_V2


class Backend:
    """Notes the batch that the engine's function gets, and what its caller sees in the caller's own meanwhile."""

    def __init__(self, own, error=None):
        self.own, self.error, self.state = own, error, FixState(FIX)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        self.batch, self.rest = forward_batch, (q, k, v, layer, save_kv_cache, kwargs)
        self.own_mode = self.own.forward_mode
        if self.error:
            raise self.error
        return "out"


def batch_of(mode):
    return SimpleNamespace(forward_mode=mode, seq_lens=torch.tensor([3, 5]), out_cache_loc=torch.arange(4), spec_info=object())


def call(backend, batch):
    target, args = one_call.target_of(FIX, "forward_extend"), ("q", "k", "v", "layer", batch, False)
    return one_call.run(target, Backend.forward_extend, backend.state, backend, *args, sinks=1)


@given(st.sampled_from(Mode))
def test_one_mode_is_seen_as_plain_extend_and_the_callers_batch_keeps_its_own(mode):
    batch = batch_of(mode)
    before = dict(vars(batch))
    backend = Backend(batch)
    with NoSync():
        assert call(backend, batch) == "out"
    corrections = backend.state.counters.corrections
    assert backend.rest == ("q", "k", "v", "layer", False, {"sinks": 1})
    assert backend.own_mode is batch.forward_mode is mode
    assert vars(batch).keys() == before.keys() and all(vars(batch)[name] is value for name, value in before.items())
    if mode is not Mode.DRAFT_EXTEND_V2:
        assert backend.batch is batch and corrections == 0
        return
    assert backend.batch.forward_mode is Mode.EXTEND and corrections == 1
    others = before.keys() - {"forward_mode"}
    assert all(getattr(backend.batch, name) is before[name] for name in others), "tensors are shared, not copied"


def test_an_error_of_the_engine_passes_and_counts_nothing():
    batch = batch_of(Mode.DRAFT_EXTEND_V2)
    backend = Backend(batch, KeyError("engine"))
    with pytest.raises(KeyError, match="engine"):
        call(backend, batch)
    assert backend.state.counters.corrections == 0 and batch.forward_mode is Mode.DRAFT_EXTEND_V2


MODULE, CLASS = "sglang.srt.layers.attention.trtllm_mha_backend", "TRTLLMHAAttnBackend"


def reader(release):
    return source_files.Sources(fetch.fetch("sglang", release, progress=False) / "sglang")


def judged(release, edit):
    """The code that the ledger has for a release after an edit, or None."""
    return ledger.load(FIX).by_digests(judge.digests(FIX, edited_release.read(reader(release), edits.EDITS[edit])))


def test_no_release_is_affected():
    assert {verdict for _, verdict in ledger.load(FIX).releases()} == {ledger.NOT_AFFECTED}


@pytest.mark.parametrize("release", edits.EDITED)
@pytest.mark.parametrize("edit", edits.EDITS)
def test_an_edit_is_known_in_full_or_not_at_all(release, edit):
    code = judged(release, edit)
    assert (code is None) == (edit in edits.UNRECOGNISED)
    assert code is None or (code.verdict, code.edited) == (ledger.AFFECTED, f"{release}: {edit}")


def test_the_modes_may_be_those_of_the_other_release():
    """Development code between the two releases."""
    read = edited_release.read(reader("0.5.11"), edits.EDITS["as upstream wrote it"], reader("0.5.12"))
    assert ledger.load(FIX).by_digests(judge.digests(FIX, read)).edited == "0.5.11 beside 0.5.12: as upstream wrote it"


@pytest.mark.parametrize("release", ["0.5.10.post1", "0.5.13", "0.5.13.post1"])
def test_the_condition_alone_is_not_the_fault(release):
    """0.5.13 has metadata of its own for a draft extend of spec v2: upstream put the condition back on purpose there."""
    assert judged(release, "as upstream wrote it") is None


@pytest.mark.parametrize("release", edits.EDITED)
def test_nothing_but_the_routing_reads_or_writes_the_mode(release):
    """So a batch under another mode is the same batch to all code that `forward_extend` hands it to."""
    backend = find(ast.parse(reader(release)(MODULE)), CLASS)
    methods = {f"self.{node.name}": node for node in backend.body if isinstance(node, ast.FunctionDef)}
    calls = [node for node in ast.walk(methods["self.forward_extend"]) if isinstance(node, ast.Call)]
    takers = {ast.unparse(call.func) for call in calls if _hands_on(call)}
    assert takers == {"self._fused_fp8_set_kv_buffer", "self._get_layer_page_table"}
    helpers = {*takers, "self._get_layer_cache_loc"}
    for name in takers:
        inner = [node for node in ast.walk(methods[name]) if isinstance(node, ast.Call)]
        assert {ast.unparse(call.func) for call in inner if _hands_on(call)} <= helpers
    nodes = [node for name in {"self.forward_extend", *helpers} for node in ast.walk(methods[name])]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    assert [node.attr for node in attributes].count("forward_mode") == 1
    assert not [node for node in attributes if not isinstance(node.ctx, ast.Load)]


def _hands_on(call: ast.Call) -> bool:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(value, ast.Name) and value.id == "forward_batch" for value in values)
