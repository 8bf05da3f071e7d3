"""What an engine's import does not pay for, and that the check of a target is as strict without a parse of its file."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest

from attnfix.compat import engines
from attnfix.compat.arming import patch_points
from attnfix.compat.arming.activation import Activation
from attnfix.compat.gate import judge, loaded_code, source_files

SHAPES = '''
import functools

def same_file_wrapper(function):
    @functools.wraps(function)
    def wrapper(self, x):
        return -1
    return wrapper

def mark(text, *more):
    return lambda function: function

class Other:
    def forward(self, x):
        return -1

class Backend:
    @mark(
        """
        a text
        """
    )
    @mark("again")
    def forward(self, x):
        return x * 2
'''


@pytest.fixture
def shapes(engine):
    engine.write("attention", SHAPES)
    return engine


def forward_after(shapes, change):
    fix = shapes.one_target()
    import sglang.attention as attention

    change(attention)
    activation = Activation([fix])
    activation.module_loaded("sglang.attention")
    state = activation.states[fix.id]
    return state.state, state.reason, attention.Backend().forward(1)


def test_a_decorated_target_is_recognised(shapes):
    assert forward_after(shapes, lambda attention: None)[::2] == ("installed", 102)


def test_what_only_looks_like_the_definition_is_none(shapes):
    """A text is not told from code; where it matters, the fix is not installed."""
    shapes.write("attention", SHAPES.replace("a text", "def text():"))
    assert forward_after(shapes, lambda attention: None)[::2] == ("conflict", 2)


@pytest.fixture(autouse=True)
def files_that_were_there_before(monkeypatch):
    """The engines' files here are as old as the test; an installed engine's are older than its process."""
    monkeypatch.setattr(loaded_code, "younger_than_process", lambda path, root: False)


def by_another_class(attention):
    attention.Backend.forward = attention.Other.forward


def by_a_wrapper_of_the_same_file(attention):
    attention.Backend.forward = attention.same_file_wrapper(attention.Backend.forward)


def by_another_class_under_its_name(attention):
    attention.Other.forward.__qualname__ = "Backend.forward"
    by_another_class(attention)


def by_code_of_another_line(attention):
    function = attention.Backend.forward
    function.__code__ = function.__code__.replace(co_firstlineno=function.__code__.co_firstlineno + 1)


@pytest.mark.parametrize("change", [by_another_class, by_a_wrapper_of_the_same_file, by_code_of_another_line])
def test_a_function_of_the_same_file_that_is_another_is_a_conflict(shapes, change):
    state, reason, value = forward_after(shapes, change)
    assert state == "conflict" and "was replaced by" in reason and value in (-1, 2)


def test_the_name_is_the_codes_own_where_python_has_it(shapes):
    import sys

    if sys.version_info < (3, 11):
        pytest.skip("before Python 3.11 code has no qualified name")
    assert forward_after(shapes, by_another_class_under_its_name)[::2] == ("conflict", -1)


def test_a_file_changed_after_it_was_loaded_is_a_conflict(engine):
    """Its code is known, and the function that runs is not the one that stands there."""
    import sglang.attention as attention

    engine.write("attention", "# upgraded in place\n" + (engine.root / "attention.py").read_text())
    activation = Activation([engine.one_target()])
    activation.module_loaded("sglang.attention")
    assert activation.states[engine.fix.id].state == "conflict"
    assert not hasattr(vars(attention.Backend)["forward"], "__wrapped__")


def test_known_code_is_recognised_and_wrapped_without_parsing_a_file(engine, monkeypatch):
    monkeypatch.setattr(judge, "parsed", lambda data: pytest.fail("parsed"))
    activation = Activation([engine.fix])
    engine.load(activation, "attention", "planning")
    assert activation.states[engine.fix.id].state == "installed"


def test_a_witness_file_is_hashed_once(engine, monkeypatch):
    hashed, real = [], source_files.Source.sha256.func
    counting = cached_property(lambda source: hashed.append(source) or real(source))
    counting.__set_name__(source_files.Source, "sha256")
    monkeypatch.setattr(source_files.Source, "sha256", counting)
    attention, planning = judge.file_hashes(engine.fix, source_files.Sources(engine.root))
    assert len(engine.fix.code_paths) == 3 and len(hashed) == 2 and attention != planning


def test_the_version_is_that_of_the_head_and_the_rest_is_not_parsed(tmp_path, monkeypatch):
    (tmp_path / "vllm-1.2.dist-info").mkdir()
    text = "Metadata-Version: 2.4\nName: vllm\nVersion: 1.2+cu129\nRequires-Dist: torch\n\nVersion: 9 in the README\n"
    (tmp_path / "vllm-1.2.dist-info/METADATA").write_text(text)
    monkeypatch.setattr("email.message_from_string", lambda text: pytest.fail("parsed"))
    assert engines.version_beside(tmp_path / "vllm") == "1.2+cu129"
    assert engines.version_beside(tmp_path / "sglang") is None


def test_seats_know_heads_of_both_kinds():
    assert [patch_points._HEAD.match(line)[1] for line in (b"def f(x):", b"  async  def g (x):", b"\tdef h")] == [
        b"f",
        b"g",
        b"h",
    ]
    assert not patch_points._HEAD.match(b"    # def f(x):") and not patch_points._HEAD.match(b"define = 1")


def test_the_fixes_of_a_module_share_one_look_at_the_files(engine, monkeypatch):
    first, read, whole = engine.one_target(), [], Path.read_bytes
    second = replace(first, id="sglang.second-fix")
    engine.judge_as("affected", second)
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.name) or whole(path))
    activation = Activation([first, second])
    engine.load(activation, "attention")
    assert [state.state for state in activation.states.values()] == ["installed", "installed"]
    assert read.count("attention.py") == 1


def test_a_file_replaced_while_it_is_looked_at_has_the_stamp_of_the_former(engine):
    """So that what was judged is compared with what lies there, and never taken for it."""
    source = source_files.Sources(engine.root)["sglang.attention"]
    engine.write("attention", "# upgraded in place\n")
    again = source_files.Sources(engine.root)["sglang.attention"]
    assert source.data == again.data and source.stamp != again.stamp
