"""Global names that witnesses read, in memory: whoever puts another thing under one before arming is noticed."""

from __future__ import annotations

import functools
import importlib
import types
from dataclasses import replace

import pytest
import wrapt

from attnfix.compat.arming.activation import Activation
from attnfix.compat.arming.wrapper import WrappedTarget
from attnfix.compat.fix import CodePath, Target

OPS = """
import math

def merge(x):
    return x + 1

class Plan:
    def size(self):
        return 1

class _Platform:
    pass

_current = None

def __getattr__(name):
    global _current
    if name == "current":
        _current = _current or _Platform()
        return _current
    raise AttributeError(name)

LIMIT = 3
"""
ATTENTION = """
import math, os.path
import json as text
from sglang.ops import (
    Plan,  # (a plan)
    merge as joined,
)
from .ops import current, LIMIT
from collections import OrderedDict

try:
    import zlib
except ImportError:
    zlib = None

class Backend:
    def forward(self, x, scale=2):
        size = (lambda: Plan().size())()
        return joined(x) * scale * size + math.floor(0.5) + (current is None) + 0 * LIMIT + bool(text and zlib and os) - 1

def unread():
    return OrderedDict()
"""


@pytest.fixture
def fix(engine):
    engine.write("ops", OPS)
    engine.write("attention", ATTENTION)
    made = replace(
        engine.fix, targets=(Target(engine.corrections.forward, paths=("sglang.attention:Backend.forward",)),), witnesses=()
    )
    engine.judge_as("affected", made)
    return made


def state_of(fix, change):
    attention, ops = importlib.import_module("sglang.attention"), importlib.import_module("sglang.ops")
    change(attention, ops)
    activation = Activation([fix])
    activation.module_loaded("sglang.attention")
    state = activation.states[fix.id]
    return state.state, state.reason


def theirs(x):
    return 0


def wrapped(function):
    return functools.wraps(function)(lambda *given: function(*given))


def instrumented(function):
    """As OpenTelemetry and ddtrace do it."""
    return wrapt.FunctionWrapper(function, lambda stock, instance, args, kwargs: -stock(*args, **kwargs))


def ours(function):
    return WrappedTarget(function, CodePath("sglang.ops", "merge")).function


REPLACED = {
    "a module by nothing": lambda attention, ops: setattr(attention, "math", None),
    "a module by another": lambda attention, ops: setattr(attention, "math", types.ModuleType("fast_math")),
    "a package of a module": lambda attention, ops: setattr(attention, "os", types.SimpleNamespace()),
    "a module under another name": lambda attention, ops: setattr(attention, "text", types.ModuleType("text")),
    "a function": lambda attention, ops: setattr(attention, "joined", theirs),
    "a function by one that is wrapped": lambda attention, ops: setattr(attention, "joined", wrapped(ops.merge)),
    "a function by one that wrapt wraps": lambda attention, ops: setattr(attention, "joined", instrumented(ops.merge)),
    "a class": lambda attention, ops: setattr(attention, "Plan", type("Plan", (ops.Plan,), {})),
    "a class by its proxy": lambda attention, ops: setattr(attention, "Plan", wrapt.ObjectProxy(ops.Plan)),
    "a module by its proxy": lambda attention, ops: setattr(attention, "math", wrapt.ObjectProxy(attention.math)),
    "what its module makes when asked": lambda attention, ops: setattr(attention, "current", object()),
}
LEFT = {
    "nothing": lambda attention, ops: None,
    "a name that no witness reads": lambda attention, ops: setattr(attention, "OrderedDict", dict),
    "a name that the engine binds otherwise, too": lambda attention, ops: setattr(attention, "zlib", None),
    "a value": lambda attention, ops: setattr(ops, "LIMIT", 4),
    "our own wrapper": lambda attention, ops: setattr(attention, "joined", ours(ops.merge)),
    "our own wrapper, and another thing at home": lambda attention, ops: (
        setattr(attention, "joined", ours(ops.merge)),
        setattr(ops, "merge", theirs),
    ),
    "the home's, after the import": lambda attention, ops: setattr(ops, "merge", theirs),
}


@pytest.mark.parametrize("change", REPLACED)
def test_another_thing_under_an_imported_name_is_a_conflict(fix, change):
    state, reason = state_of(fix, REPLACED[change])
    assert state == "conflict" and "which the judged code reads" in reason, reason


@pytest.mark.parametrize("change", LEFT)
def test_what_an_engine_does_itself_or_nobody_reads_is_none(fix, change):
    assert state_of(fix, LEFT[change])[0] == "installed"


def test_what_comes_after_arming_is_the_engines_affair(fix, engine):
    """As a profiler's, or a stand-in of a test: the names of witnesses themselves are looked at again at the first call."""
    activation = Activation([fix])
    attention = engine.load(activation, "attention")
    attention.math = types.SimpleNamespace(floor=lambda x: 0)
    assert attention.Backend().forward(1) == 104 and activation.rows()[0]["state"] == "effective"
