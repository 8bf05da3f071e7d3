"""sglang.mha-draft-extend-routing on the sources of every release: which code is known, and what reads the mode."""

from __future__ import annotations

import ast

import pytest

from attnfix.compat.gate import judge, ledger, source_files
from attnfix.compat.gate.digest import find
from attnfix.compat.releases import fetch
from attnfix.patches.sglang.mha_draft_extend_routing import edits
from attnfix.patches.sglang.mha_draft_extend_routing.fix import FIX
from attnfix.prove import edited_release

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
