"""sglang.skip-seq-lens-sync: mask, buffers and decision without an engine, and the decision on real sources."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.gate import judge, ledger, source_files
from attnfix.compat.gate.digest import find
from attnfix.compat.releases import fetch
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.skip_seq_lens_sync import edits
from attnfix.patches.sglang.skip_seq_lens_sync.fix import BACKEND, FIX
from attnfix.prove import edited_release, runner
from tests.support import one_call
from tests.support.no_sync import NoSync

DECIDE, ALLOCATE, BUFFERS = FIX.targets[:3]
STOCK = [None, None]


def backend_of(context=64, draft=4, skip_prefill=False, graphs=True):
    return SimpleNamespace(
        max_context_len=context, num_draft_tokens=draft, skip_prefill=skip_prefill, device="cpu",
        decode_cuda_graph_kv_indices=torch.zeros(1) if graphs else None,
    )  # fmt: skip


def init_cuda_graph_state(self, max_bs, max_num_tokens, kv_indices_buf=None):
    self.called_with.append((max_bs, max_num_tokens, kv_indices_buf))
    return "the engine's"


def allocate(backend, *args):
    state, backend.called_with = FixState(FIX), []
    assert one_call.run(ALLOCATE, init_cuda_graph_state, state, backend, *args) == "the engine's"
    assert backend.called_with == [(*args, None)[:3]]
    return state.counters.corrections


def returning(stock):
    def get_verify_buffers_to_fill_after_draft(self):
        return stock

    return get_verify_buffers_to_fill_after_draft


def buffers(backend, stock=STOCK):
    state = FixState(FIX)
    return one_call.run(BUFFERS, returning(stock), state, backend), state.counters.corrections


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 500))
@settings(max_examples=60, deadline=None)
def test_the_mask_has_exactly_the_size_of_the_worst_case(max_bs, draft, context):
    backend, rows = backend_of(context, draft), max_bs * draft
    with NoSync():
        assert allocate(backend, max_bs, rows, None) == 1
        (mask, positions), handed_out = buffers(backend)
    assert mask.shape == (rows * (context + draft),) and mask.dtype == torch.bool and not mask.any()
    assert positions is None and handed_out == 1
    # Any batch fits: the lengths of the requests are below the context's
    assert mask.numel() >= sum(draft * (context + draft) for _ in range(max_bs))


def test_the_mask_is_allocated_once_for_graphs_of_one_size():
    backend = backend_of()
    assert allocate(backend, 8, 32) == 1
    mask = buffers(backend)[0][0]
    assert allocate(backend, 8, 32) == 0 and buffers(backend)[0][0] is mask
    assert allocate(backend, 16, 64) == 1 and buffers(backend)[0][0].numel() == 64 * 68


def test_without_room_for_the_mask_the_fix_gives_up_before_the_engine_decides(monkeypatch):
    backend, state = backend_of(), FixState(FIX)
    backend.called_with = []
    monkeypatch.setattr(torch, "zeros", lambda *args, **kwargs: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
    wrapper = one_call.wrapper(ALLOCATE, init_cuda_graph_state, state)
    assert wrapper.function(backend, 8, 32, None) == "the engine's" and len(backend.called_with) == 1
    assert state.state == "failed" and state.reason.startswith("no room for a tree mask of 2176 bytes: full;")
    assert state.counters.corrections == 0


@pytest.mark.parametrize("backend", [backend_of(skip_prefill=True), backend_of(draft=None), backend_of(draft=0)])
def test_a_backend_that_verifies_nothing_gets_no_mask(backend):
    assert allocate(backend, 8, 32) == 0
    assert not hasattr(backend, "cuda_graph_custom_mask")
    stock = [None, None]
    assert buffers(backend, stock) == (stock, 0)


@pytest.mark.parametrize("left", [True, False])
def test_without_cuda_graphs_the_engines_own_buffers_are_handed_out(left):
    backend = backend_of(graphs=False)
    if left:
        backend.cuda_graph_custom_mask = None
    stock = object()
    assert buffers(backend, stock) == (stock, 0)


def test_a_mask_that_is_needed_and_absent_is_an_error_that_says_so():
    state = FixState(FIX)
    assert one_call.wrapper(BUFFERS, returning(STOCK), state).function(backend_of()) is STOCK
    assert state.state == "failed" and "RuntimeError: no tree mask" in state.reason


class TRTLLMMLABackend:
    """By the name alone does the correction know who opted out."""


class TRTLLMMLAMultiStepDraftBackend:
    pass


class Heir(TRTLLMMLABackend):
    pass


class Foreign:
    pass


SERVED = {"speculative_algorithm": "EAGLE", "enable_multi_layer_eagle": False, "enable_forward_pass_metrics": False}
KEPT = [{"speculative_algorithm": name} for name in ("STANDALONE", "NGRAM", "DFLASH", "FROZEN_KV_MTP", None)]
KEPT += [{"enable_multi_layer_eagle": True}, {"enable_forward_pass_metrics": True}]
OURS = [TRTLLMMLABackend(), TRTLLMMLAMultiStepDraftBackend(), None, Heir()]


def decision(stock, backends, settings):
    calls, state, args = [], FixState(FIX), (SimpleNamespace(**settings), backends)

    def decide_needs_cpu_seq_lens(server_args, attn_backends):
        calls.append((server_args, attn_backends))
        return stock

    result = one_call.run(DECIDE, decide_needs_cpu_seq_lens, state, *args)
    assert calls == [args] and state.counters.corrections == 0
    return result


@pytest.mark.parametrize("changed", [{}, {"speculative_algorithm": "EAGLE3"}, *KEPT])
@pytest.mark.parametrize("backends", [OURS, OURS[:1], OURS[1:2], [OURS[3], None]])
def test_only_what_knows_a_batch_without_lengths_gets_one(changed, backends):
    assert decision(True, backends, SERVED | changed) is True, "never less than the engine asks for"
    assert decision(False, backends, SERVED | changed) is (changed in KEPT)


@pytest.mark.parametrize("unknown", SERVED)
def test_a_server_of_unknown_settings_keeps_the_lengths(unknown):
    assert decision(False, OURS, {name: value for name, value in SERVED.items() if name != unknown}) is True


@pytest.mark.parametrize("changed", [{}, *KEPT])
@pytest.mark.parametrize("stock", [True, False])
@pytest.mark.parametrize("backends", [[], [None], [Foreign()]])
def test_a_decision_without_our_backends_is_the_engines(stock, changed, backends):
    assert decision(stock, backends, SERVED | changed) is stock


PUBLISHED = dict(ledger.load(FIX).releases())
EDITED = ("0.5.13", "0.5.13.post1")
MHA = "sglang.srt.layers.attention.trtllm_mha_backend"


def root_of(release):
    return fetch.fetch("sglang", release, progress=False) / "sglang"


def judged(release, edit):
    """The gate's verdict on the digests of a release after an edit."""
    read = edited_release.read(source_files.Sources(root_of(release)), edit)
    return ledger.load(FIX).by_digests(judge.digests(FIX, read))


@pytest.mark.parametrize("release", PUBLISHED)
def test_no_published_release_is_affected(release):
    assert PUBLISHED[release] == ledger.NOT_AFFECTED


@pytest.mark.parametrize("release", EDITED)
@pytest.mark.parametrize("name", [*edits.RECOGNISED, *edits.LOOKALIKES])
def test_an_edit_is_in_the_ledger_or_not_as_declared(release, name):
    code = judged(release, {**edits.RECOGNISED, **edits.LOOKALIKES}[name])
    assert (code is not None) is (name in edits.RECOGNISED)
    assert code is None or code.verdict == ledger.AFFECTED


@pytest.mark.parametrize("release", EDITED)
def test_the_releases_own_text_without_the_opt_out_is_known(release):
    """Not only what `ast.unparse` makes of it: lines are cut out of the file as it is."""

    def cut_out(read):
        source = read(BACKEND)
        tree, lines = ast.parse(source), source.splitlines()
        before = {node: (node.lineno, node.end_lineno) for node in ast.walk(tree) if isinstance(node, ast.stmt)}
        edits.without_opt_out(tree)
        left = set(ast.walk(tree))
        gone = {line for node, (first, last) in before.items() if node not in left for line in range(first, last + 1)}
        text = "\n".join(line for number, line in enumerate(lines, 1) if number not in gone)
        assert "  # " in text and "cuda_graph_custom_mask" not in text
        return {BACKEND: text}

    assert judged(release, cut_out).verdict == ledger.AFFECTED


# The other TRT-LLM backend


@pytest.mark.parametrize("release", EDITED)
def test_trtllm_mha_reads_the_lengths_and_is_nobodys_target(release):
    tree = ast.parse(source_files.Sources(root_of(release))(MHA))
    backend = find(tree, "TRTLLMHAAttnBackend")
    assert any(isinstance(node, ast.Attribute) and node.attr == "seq_lens_cpu" for node in ast.walk(backend))
    assert not any(place.module == MHA for place in FIX.code_paths)


# The engine's decision, on real classes

LOOK = """
import json
from attnfix.prove import side; from attnfix.prove import stubs
stubs.install("sglang")
side._ease_engine("sglang")
from attnfix.patches.lab.proof import replaced
from attnfix.patches.sglang.skip_seq_lens_sync.proof import _BACKEND, _MHA, Proof, _graph_state
proof = Proof()
stubs.freeze()
proof.prepare()
trtllm, mha = proof.engine[_BACKEND], proof.engine[_MHA]
TARGET, DRAFT = trtllm.TRTLLMMLABackend, trtllm.TRTLLMMLAMultiStepDraftBackend
new = object.__new__
both, other = [new(TARGET), new(DRAFT), new(TARGET), None], new(mha.TRTLLMHAAttnBackend)

def without(kind):
    if "needs_cpu_seq_lens" not in vars(kind):  # without the fix neither class has it
        return proof._decision(both)
    with replaced(kind, "needs_cpu_seq_lens", True):
        return proof._decision(both)

def mask(**kwargs):
    backend = proof._backend(**kwargs)
    before = backend.get_verify_buffers_to_fill_after_draft()
    _graph_state(backend)
    tree, positions = backend.get_verify_buffers_to_fill_after_draft()
    return [before, tree if tree is None else [str(tree.dtype), tree.numel()], positions]

def attributes():
    kinds = TARGET, DRAFT, mha.TRTLLMHAAttnBackend, mha.TRTLLMHAAttnMultiStepDraftBackend
    return [vars(kind).get("needs_cpu_seq_lens") for kind in kinds]

def plain():
    names = "init_cuda_graph_state", "forward_extend", "get_verify_buffers_to_fill_after_draft"
    return [type(vars(kind).get(name)).__name__ for kind in (TARGET, mha.TRTLLMHAAttnBackend) for name in names]

import attnfix
state = next(row for row in attnfix.status() if row["fix"] == "sglang.skip-seq-lens-sync")
seen = dict(
    state=state["state"], both=proof._decision(both), no_target=without(TARGET), no_draft=without(DRAFT),
    overlap=proof._decision(both, enable_two_batch_overlap=True), beside=proof._decision([*both, other]),
    piecewise=proof._decision(both, disable_piecewise_cuda_graph=False), mha=proof._decision([other]),
    ngram=proof._decision(both, speculative_algorithm="NGRAM"), layers=proof._decision(both, enable_multi_layer_eagle=True),
    metrics=proof._decision(both, enable_forward_pass_metrics=True),
    attributes=attributes(), plain=plain(), verify=mask(), prefill=mask(skip_prefill=True), drafts=mask(num_draft_tokens=None),
)
from attnfix.bootstrap.process import activation
fallen = activation().states["sglang.skip-seq-lens-sync"]
if fallen.armed:
    fallen.fail("for the test")
    seen.update(fallen=[attributes(), proof._decision(both), mask()[1]])
print("seen " + json.dumps(seen))
"""


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    """`look(edit, **variables)`: what LOOK sees in 0.5.13 after an edit."""

    def get(edit, **variables):
        site = edited_release.site(tmp_path_factory.mktemp("edited"), "sglang", root_of("0.5.13"), edit)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
        environment |= runner.CPU | {"PYTHONPATH": str(site), "ATTNFIX_RUN_DIR": str(site.parent)} | variables
        others = (
            "SGLANG_LSE_LOG_BASE",
            "SGLANG_TRTLLM_MHA_KV_SCALES",
            "SGLANG_FA3_DP_PADDING",
        )  # have corrections in the same classes
        environment |= {f"ATTNFIX_{name}": "0" for name in others}
        done = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, timeout=600)
        lines = [line for line in done.stdout.splitlines() if line.startswith("seen ")]
        assert lines, done.stderr
        return json.loads(lines[-1][5:])

    return get


WAITS = dict.fromkeys(("no_target", "no_draft", "overlap", "piecewise", "beside", "mha", "ngram", "layers", "metrics"), True)


def test_the_decision_turns_with_both_classes_and_never_else(look):
    seen = look(edits.RECOGNISED["opt-out taken out"], **{FIX.switch: "1"})
    assert seen["state"] == "installed" and seen["both"] is False
    assert {name: seen[name] for name in WAITS} == WAITS
    rows = 8 * 4
    assert seen["verify"] == [[None, None], ["torch.bool", rows * (96 + 4)], None]
    assert seen["prefill"] == seen["drafts"] == [[None, None], None, None]
    assert seen["attributes"] == [False, False, None, None]
    assert seen["plain"][3:] == ["function", "function", "NoneType"], "trtllm_mha is as it was"
    assert seen["fallen"] == [[None] * 4, True, None]


def test_without_being_asked_for_the_fix_touches_nothing(look):
    seen = look(edits.RECOGNISED["opt-out taken out"])
    assert seen["state"] == "off" and seen["both"] is True and {name: seen[name] for name in WAITS} == WAITS
    assert seen["attributes"] == [None] * 4 and seen["plain"] == ["function", "function", "NoneType"] * 2
    assert seen["verify"] == [[None, None], None, None]
