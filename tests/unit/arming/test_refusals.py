"""A process that requires its fixes: what it refuses to serve with, and what not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnfix.compat.arming import activation as module_under_test
from attnfix.compat.arming import switches
from attnfix.compat.arming.activation import Activation
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import CodePath
from attnfix.compat.status import messages


@pytest.fixture
def ended(monkeypatch):
    said = []
    monkeypatch.setattr(messages, "end_process", lambda states: said.extend(state.fix.id for state in states))
    return said


@pytest.fixture
def runner(engine, monkeypatch):
    """A module that loads the model, in a process that requires every fix."""
    engine.write("runner", "class Runner:\n    def load_model(self):\n        return 'loaded'\n")
    code_path = CodePath("sglang.runner", "Runner.load_model")
    monkeypatch.setitem(ENGINES, "sglang", ENGINES["sglang"]._replace(load_model=(code_path,)))
    monkeypatch.setenv("ATTNFIX_STRICT", "1")


@pytest.mark.parametrize("variable", ["ATTNFIX_STRICT", "ATTNFIX_SGLANG_SMALL_FIX"])
def test_a_required_fix_that_cannot_be_armed_ends_the_process(engine, monkeypatch, ended, variable):
    import sglang.attention as attention

    attention.Backend.forward = lambda self, x: 0
    monkeypatch.setenv(variable, "1")
    engine.load(Activation([engine.one_target()]), "attention")
    assert ended == [engine.fix.id]


def test_strict_is_content_with_a_fix_that_stands_or_is_not_needed(engine, monkeypatch, ended):
    monkeypatch.setenv("ATTNFIX_STRICT", "1")
    engine.load(Activation([engine.one_target()]), "attention")
    engine.judge_as("fixed upstream", engine.fix)
    engine.load(Activation([engine.fix]), "planning")
    assert ended == []


def test_strict_looks_again_when_the_model_is_loaded(engine, runner, ended):
    """A target that somebody replaces after the fix was installed is found before the engine serves."""
    activation = Activation([engine.one_target()])
    attention, loader = engine.load(activation, "attention"), engine.load(activation, "runner")
    assert loader.Runner().load_model() == "loaded" and ended == []
    attention.Backend.forward = lambda self, x: 0
    assert loader.Runner().load_model() == "loaded"
    assert ended == [engine.fix.id] and activation.states[engine.fix.id].state == "conflict"


def test_strict_refuses_to_serve_where_that_look_fails(engine, runner, monkeypatch):
    def broken(module):
        raise MemoryError("no room")

    said = []
    monkeypatch.setattr(messages, "refuse", said.append)
    activation = Activation([engine.one_target()])
    loader = engine.load(activation, "runner")
    activation.module_loaded("sglang")  # as the import hook has: nothing is left to catch up with
    monkeypatch.setattr(activation, "_enforce_strict", broken)
    loader.Runner().load_model()
    assert said == ["a look at sglang.runner failed: MemoryError: no room"]


def test_unknown_source_is_required_only_where_the_bug_may_be(engine, monkeypatch, ended):
    """STRICT lets a release start that lies past the fix, even where a witness was edited."""
    engine.write("planning", "def plan(x):\n    return x + 2\n")
    monkeypatch.setenv("ATTNFIX_STRICT", "1")
    for version, refused in (("2.0", True), ("0.9", False), (None, True)):
        ended.clear()
        monkeypatch.setattr(module_under_test, "version_of", lambda engine, version=version: version)
        activation = Activation([engine.fix])
        engine.load(activation, "planning")
        assert activation.states[engine.fix.id].state == "unknown source"
        assert bool(ended) is refused, version


@pytest.fixture
def logged(caplog):
    caplog.set_level("WARNING", "sglang.attnfix")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    "environ, result, state, reason",
    [
        ({"ATTNFIX_ONLY": "sglang.small-fix"}, 102, "effective", None),
        ({"ATTNFIX_ONLY": "sglang.small-fix", "ATTNFIX_SGLANG_SMALL_FIX": "0"}, 2, "off", "ATTNFIX_SGLANG_SMALL_FIX=0"),
        ({"ATTNFIX_ONLY": ""}, 2, "off", "not in ATTNFIX_ONLY"),
        ({"ATTNFIX_ONLY": "sglang.other-fix", "ATTNFIX_SGLANG_SMALL_FIX": "1"}, 2, "off", "not in ATTNFIX_ONLY"),
        ({"ATTNFIX_ONLY": "sglang.small-fix,sglang.gone"}, 2, "off", switches.UNKNOWN_ID),
        ({"ATTNFIX_FIXSET": "0123456789ab"}, 2, "off", switches.OTHER_SET),
    ],
)
@pytest.mark.parametrize("default", [True, False])
def test_a_restriction_arms_nothing_else(engine, monkeypatch, ended, logged, environ, result, state, reason, default):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    fix = replace(engine.one_target(), default=default)
    activation = Activation([fix], every_fix=lambda: [replace(fix, id="sglang.other-fix")])
    assert engine.load(activation, "attention").Backend().forward(1) == result
    found = activation.states[fix.id]
    assert found.state == state and (reason is None or found.reason == reason) and ended == []
    refused = reason in (switches.UNKNOWN_ID, switches.OTHER_SET)
    assert [message.startswith(f"attnfix: {reason}, so nothing") for level, message in logged() if level == "ERROR"] == [
        True
    ] * refused


def test_a_pinned_set_that_is_here_is_armed(engine, monkeypatch):
    fix = engine.one_target()
    monkeypatch.setenv("ATTNFIX_FIXSET", switches.fixset_on([fix]))
    assert engine.load(Activation([fix], every_fix=lambda: [fix]), "attention").Backend().forward(1) == 102


@pytest.mark.parametrize("name, value", [("ATTNFIX_ONLY", "sglang.gone"), ("ATTNFIX_FIXSET", "0123456789ab")])
@pytest.mark.parametrize("required", ["ATTNFIX_STRICT", None])
def test_strict_refuses_to_serve_under_a_restriction_that_is_refused(engine, monkeypatch, name, value, required):
    said = []
    monkeypatch.setattr(messages, "refuse", said.append)
    monkeypatch.setenv(name, value)
    if required:
        monkeypatch.setenv(required, "1")
    activation = Activation([engine.one_target()])
    engine.load(activation, "attention")
    assert [sentence.startswith(f"{name} names ") for sentence in said] == [True] * bool(required)
    said.clear()
    monkeypatch.setenv("SGLANG_PLUGINS", "other")
    activation.module_loaded("sglang.attention")
    assert said == [], "no restriction overrules an allow-list"


def test_a_restriction_is_asked_once_until_a_variable_or_the_fixes_change(engine, monkeypatch):
    asked = []
    fix = engine.one_target()
    off = replace(fix, id="sglang.other-fix", default=False)
    activation = Activation([fix], every_fix=lambda: asked.append(1) or [off])
    monkeypatch.setenv("ATTNFIX_FIXSET", switches.fixset_on([fix]))
    engine.load(activation, "attention")
    activation.module_loaded("sglang.attention")
    assert activation._refused() is None and len(asked) == 1
    monkeypatch.setenv(off.switch, "1")
    assert activation._refused().reason == switches.OTHER_SET and len(asked) == 2
    monkeypatch.delenv("ATTNFIX_FIXSET")
    assert activation._refused() is None
    monkeypatch.setenv("ATTNFIX_ONLY", "sglang.third-fix")
    assert activation._refused().reason == switches.UNKNOWN_ID
    activation.add([replace(fix, id="sglang.third-fix")])
    assert activation._refused() is None
