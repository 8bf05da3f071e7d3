"""sglang.mha-draft-extend-routing on the sources of every release: what is recognised, and above all what is not."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from copy import copy, deepcopy
from functools import cache
from itertools import islice

import pytest

from attnfix.compat import gate, ledger, releases
from attnfix.compat.digest import digest, find
from attnfix.compat.fix import Place
from attnfix.patches.sglang.mha_draft_extend_routing import FIX, edits, structure

RELEASES = [release for release, _ in ledger.load(FIX).releases()]
MODULE, CLASS = structure.BACKEND.split(":")


@cache
def reader(release):
    return gate.Sources(releases.fetch("sglang", release, progress=False) / "sglang")


@cache
def tree(release, edit=None):
    """The backend's module, stock or with the fault put back."""
    if edit is None:
        return ast.parse(reader(release)(MODULE))
    return ast.parse(edits.EDITS[edit](lambda module: reader(release)(module).decode())[MODULE])


def recognise(release, backend):
    """The predicate's word on a release whose backend is this class."""
    return structure.recognise(
        lambda text: backend if text == structure.BACKEND else gate.witness(Place.parse(text), reader(release))
    )


@pytest.mark.parametrize("release", RELEASES)
def test_no_release_is_taken_for_the_fault(release):
    assert structure.recognise(lambda text: gate.witness(Place.parse(text), reader(release))) is None
    assert ledger.load(FIX).verdict(release) == ledger.NOT_AFFECTED


@pytest.mark.parametrize("release", edits.EDITED)
@pytest.mark.parametrize("edit", edits.EDITS)
def test_an_edit_is_recognised_in_full_or_not_at_all(release, edit):
    word = recognise(release, find(tree(release, edit), CLASS))
    assert (word is None) == (edit in edits.UNRECOGNISED)
    assert word is None or word.startswith(f"the backend of {release},")


@pytest.mark.parametrize("release", ["0.5.10.post1", "0.5.13", "0.5.13.post1"])
def test_the_condition_alone_is_not_the_fault(release):
    """0.5.13 has metadata of its own for a draft extend of spec v2: upstream put the condition back on purpose there."""
    assert recognise(release, find(tree(release, "as upstream wrote it"), CLASS)) is None


def test_the_known_digests_are_those_of_the_releases():
    assert {digest(find(tree(release), CLASS)): release for release in structure.HEALTHY.values()} == structure.HEALTHY
    for text, known in structure.REST.items():
        found = [gate.witness(Place.parse(text), reader(release)) for release in structure.HEALTHY.values()]
        assert {digest(node) for node in found} == set(known)


@pytest.mark.parametrize("release", edits.EDITED)
@pytest.mark.parametrize("edit", [name for name in edits.EDITS if name not in edits.UNRECOGNISED])
def test_a_mutant_of_an_edited_source_is_never_recognised(release, edit):
    backend = find(tree(release, edit), CLASS)
    index = next(i for i, node in enumerate(backend.body) if getattr(node, "name", None) == "forward_extend")
    draw = random.Random(f"{release} {edit}")
    for what, method in [_mutant(backend.body[index], *place) for place in _some(draw, backend.body[index], 25)]:
        mutant = copy(backend)
        mutant.body = [*backend.body[:index], method, *backend.body[index + 1 :]]
        assert recognise(release, mutant) is None, what
    for what, mutant in [_mutant(backend, *place) for place in _some(draw, backend, 15)]:
        assert recognise(release, mutant) is None, what
    assert recognise(release, backend), "the edited source itself was changed"


def _some(draw, within, count):
    places = _places(within)
    assert len(places) > 100
    return draw.sample(places, count)


@pytest.mark.parametrize("release", edits.EDITED)
def test_nothing_but_the_routing_reads_or_writes_the_mode(release):
    """So a batch under another mode is the same batch to all code that `forward_extend` hands it to."""
    backend = find(tree(release), CLASS)
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


def _places(within: ast.AST) -> list[tuple[int, Callable]]:
    """(index in the walk, change) of everything that can be changed in a definition. Docstrings are no code."""
    docstrings = {
        id(constant)
        for node in ast.walk(within)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None
        for constant in ast.walk(node.body[0])
    }
    nodes = [(index, node) for index, node in enumerate(ast.walk(within)) if index and id(node) not in docstrings]
    return [(index, change) for index, node in nodes for kind, change in CHANGES if isinstance(node, kind)]


def _mutant(within: ast.AST, index: int, change: Callable) -> tuple[str, ast.AST]:
    copy = deepcopy(within)
    node = next(islice(ast.walk(copy), index, None))
    what = f"{change.__name__}: {ast.unparse(node)}"
    change(node, copy)
    return what, copy


def _gone(node: ast.stmt, copy: ast.AST) -> None:
    for parent in ast.walk(copy):
        for block in ("body", "orelse"):
            statements = getattr(parent, block, None)
            if isinstance(statements, list) and node in statements:
                statements[statements.index(node) : statements.index(node) + 1] = [] if len(statements) > 1 else [ast.Pass()]


def _constant(node: ast.Constant, copy: ast.AST) -> None:
    node.value = f"{node.value}, changed"


def _turned(node: ast.If, copy: ast.AST) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _operator(node: ast.BoolOp, copy: ast.AST) -> None:
    node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()


def _comparison(node: ast.Compare, copy: ast.AST) -> None:
    node.ops = [ast.NotEq() if isinstance(node.ops[0], ast.Eq) else ast.Is()]


def _attribute(node: ast.Attribute, copy: ast.AST) -> None:
    node.attr += "_2"


CHANGES = [
    (ast.stmt, _gone),
    (ast.Constant, _constant),
    (ast.If, _turned),
    (ast.BoolOp, _operator),
    (ast.Compare, _comparison),
    (ast.Attribute, _attribute),
]
