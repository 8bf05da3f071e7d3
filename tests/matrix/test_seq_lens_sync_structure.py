"""sglang.skip-seq-lens-sync against real sources: which code is recognised, and what the engine then decides."""

from __future__ import annotations

import ast
import copy
import json
import os
import subprocess
import sys

import pytest

from attnfix.compat import gate, ledger, releases
from attnfix.compat.digest import find, in_context
from attnfix.compat.fix import Place
from attnfix.patches.sglang.skip_seq_lens_sync import FIX, edits
from attnfix.patches.sglang.skip_seq_lens_sync import structure as recognition
from attnfix.prove import edited, runner

PUBLISHED = dict(ledger.load(FIX).releases())
EDITED = ("0.5.13", "0.5.13.post1")
MHA = "sglang.srt.layers.attention.trtllm_mha_backend"


def root_of(release):
    return releases.fetch("sglang", release, progress=False) / "sglang"


def locator(read, sources=None):
    """`locate` of a release, some modules of which have other sources."""
    trees = {module: ast.parse(source) for module, source in (sources or {}).items()}

    def locate(text):
        place = Place.parse(text)
        if place.module in trees:
            return in_context(trees[place.module], place.qualname)
        return gate.witness(place, read)

    return locate


def after(edit, release):
    read = gate.Sources(root_of(release))
    return locator(read, edit(lambda module: read(module).decode()))


@pytest.mark.parametrize("release", PUBLISHED)
def test_no_published_release_is_recognised(release):
    assert PUBLISHED[release] == ledger.NOT_AFFECTED
    read = gate.Sources(root_of(release))
    assert recognition.structure(lambda text: gate.witness(Place.parse(text), read)) is None


@pytest.mark.parametrize("release", EDITED)
@pytest.mark.parametrize("name", [*edits.RECOGNISED, *edits.LOOKALIKES])
def test_an_edit_is_recognised_or_not_as_declared(release, name):
    edit = {**edits.RECOGNISED, **edits.LOOKALIKES}[name]
    assert (recognition.structure(after(edit, release)) is not None) is (name in edits.RECOGNISED)


@pytest.mark.parametrize("release", EDITED)
def test_the_releases_own_text_without_the_opt_out_is_recognised(release):
    """Not only what `ast.unparse` makes of it: lines are cut out of the file as it is."""
    read = gate.Sources(root_of(release))
    source = read(recognition.BACKEND).decode()
    tree, lines = ast.parse(source), source.splitlines()
    before = {node: (node.lineno, node.end_lineno) for node in ast.walk(tree) if isinstance(node, ast.stmt)}
    edits.without_opt_out(tree)
    left = set(ast.walk(tree))
    gone = {line for node, (first, last) in before.items() if node not in left for line in range(first, last + 1)}
    text = "\n".join(line for number, line in enumerate(lines, 1) if number not in gone)
    assert "  # " in text and "cuda_graph_custom_mask" not in text
    assert recognition.structure(locator(read, {recognition.BACKEND: text})) is not None


# Mutants


@pytest.fixture(scope="module")
def path():
    """The recognised path's definitions."""
    locate = after(edits.RECOGNISED["opt-out taken out"], "0.5.13")
    return {place: locate(place) for place in recognition.PATH}


def functions(node):
    return [child for child in ast.walk(node) if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))]


READS = ("seq_lens_cpu = batch.seq_lens_cpu", "total = getattr(batch, 'seq_lens_sum')", "helper(batch)")


def test_a_read_added_to_any_function_of_the_path_is_not_recognised(path):
    mutants = 0
    for place, node in path.items():
        for index in range(len(functions(node))):
            mutant = copy.deepcopy(node)
            functions(mutant)[index].body[:0] = ast.parse(READS[index % len(READS)]).body
            assert recognition.structure({**path, place: mutant}.get) is None, f"{place}, function {index}"
            mutants += 1
    assert mutants >= 100


def test_a_statement_lost_by_any_part_of_the_path_is_not_recognised(path):
    for place, node in path.items():
        mutant = copy.deepcopy(node)
        body = (functions(mutant) or [mutant])[-1].body
        body[-1:] = ast.parse("raise KeyError").body
        assert recognition.structure({**path, place: mutant}.get) is None, place


def test_another_head_of_a_class_of_the_path_is_not_recognised(path):
    """A decorator or a base class decides about every method; the path's methods carry the heads of their classes."""
    methods = 0
    for place, node in path.items():
        if isinstance(node, ast.ClassDef):
            for change in (lambda c: c.decorator_list.append(ast.Name("slotted")), lambda c: c.bases.append(ast.Name("Mixin"))):
                change(mutant := copy.deepcopy(node))
                assert recognition.structure({**path, place: mutant}.get) is None, place
            methods += "." in place.partition(":")[2]
    assert methods >= 10


def test_every_guard_against_missing_lengths_is_needed(path):
    """`x is None` turned round, wherever the path asks it of anything."""
    turned = 0
    for place, node in path.items():
        for index in [i for i, child in enumerate(ast.walk(node)) if _asks_for_none(child)]:
            mutant = copy.deepcopy(node)
            question = list(ast.walk(mutant))[index]
            question.ops = [ast.Is() if isinstance(question.ops[0], ast.IsNot) else ast.IsNot()]
            assert recognition.structure({**path, place: mutant}.get) is None, place
            turned += 1
    assert turned >= 30


def _asks_for_none(node):
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))


# The other TRT-LLM backend


@pytest.mark.parametrize("release", EDITED)
def test_trtllm_mha_reads_the_lengths_and_is_nobodys_target(release):
    tree = ast.parse(gate.Sources(root_of(release))(MHA))
    backend = find(tree, "TRTLLMHAAttnBackend")
    assert any(isinstance(node, ast.Attribute) and node.attr == "seq_lens_cpu" for node in ast.walk(backend))
    assert not any(place.module == MHA for place in FIX.places)


# The engine's decision, on real classes

LOOK = """
import importlib, json
from attnfix.prove import child, stubs
stubs.install("sglang")
child._ease_engine("sglang")
from attnfix.patches.sglang.skip_seq_lens_sync import proof
modules = {name: importlib.import_module(name) for name in proof.MODULES}
stubs.freeze()
proof.prepare(modules)
trtllm, mha = modules[proof._BACKEND], modules[proof._MHA]
TARGET, DRAFT = trtllm.TRTLLMMLABackend, trtllm.TRTLLMMLAMultiStepDraftBackend
new = object.__new__
both, other = [new(TARGET), new(DRAFT), new(TARGET), None], new(mha.TRTLLMHAAttnBackend)

def without(kind):
    if "needs_cpu_seq_lens" not in vars(kind):  # without the fix neither class has it
        return proof._decision(both)
    with proof.replaced(kind, "needs_cpu_seq_lens", True):
        return proof._decision(both)

def mask(**kwargs):
    backend = proof._backend(**kwargs)
    before = backend.get_verify_buffers_to_fill_after_draft()
    proof._graph_state(backend)
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
from attnfix.plugin import activation
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
        site = edited.site(tmp_path_factory.mktemp("edited"), "sglang", root_of("0.5.13"), edit)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
        environment |= runner.CPU | {"PYTHONPATH": str(site), "ATTNFIX_RUN_DIR": str(site.parent)} | variables
        environment |= {"ATTNFIX_SGLANG_LSE_LOG_BASE": "0"}  # it has a correction in the same class
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
