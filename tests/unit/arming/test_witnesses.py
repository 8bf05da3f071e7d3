"""Witnesses in memory: whoever replaces one is noticed at arming and at the first call; what an engine itself does is not."""

from __future__ import annotations

import functools
import importlib
import types
from dataclasses import replace

import pytest
import wrapt

from attnfix.compat.arming.activation import Activation
from attnfix.compat.arming.wrapper import WrappedTarget
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import CodePath, Target

MERGE = """
import dataclasses, enum, functools, os

def traced(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

def merge(x):
    return x + 1

@traced
def decorated(x):
    return x + 2

@functools.lru_cache
def cached(x):
    return x + 3

class Mode(enum.IntEnum):
    VERIFY = 1

    def is_verify(self):
        return self == Mode.VERIFY

@dataclasses.dataclass
class Plan:
    lens: int = 0

    @staticmethod
    def pages(lens):
        return lens // 4

    @classmethod
    def empty(cls):
        return cls()

    @property
    def full(self):
        return self.lens > 4

    @staticmethod
    @functools.lru_cache
    def kept(lens):
        return lens // 8

    @classmethod
    @traced
    def filled(cls):
        return cls(4)

class Kernel:
    def run(self, x):
        return x

    borrowed = merge

class Field:
    locked = False

    def get(self):
        return self.locked

    def _find(self):
        return self.get()

Field.locked = True

if os.name == "posix":
    def chosen(x):
        return x
else:
    from os.path import join as chosen

try:
    from sglang.nowhere import optional
except ImportError:
    optional = None
"""
ATTENTION = """
from sglang.merge import Kernel, Plan, decorated, merge
from . import merge as module
from .merge import cached as remembered

class Backend:
    def forward(self, x, scale=2):
        return merge(x) * scale
"""
WITNESSES = (
    *("merge", "decorated", "cached", "chosen", "optional"),
    *("Mode.VERIFY", "Mode.is_verify", "Plan", "Plan.pages", "Plan.kept", "Plan.filled", "Kernel", "Field"),
)


@pytest.fixture
def fix(engine):
    engine.write("merge", MERGE)
    engine.write("attention", ATTENTION)
    target = Target(engine.corrections.forward, paths=("sglang.attention:Backend.forward",))
    witnesses = tuple(f"sglang.merge:{name}" for name in WITNESSES)
    made = replace(engine.fix, targets=(target,), witnesses=(*witnesses, "sglang.attention:merge", "sglang.merge:"))
    engine.judge_as("affected", made)
    return made


def theirs(*args, **kwargs):
    return 0


def state_of(fix, engine, change, when):
    """State and reason of the fix where `change(merge module, attention module)` is made before it is armed, or after."""
    merge = importlib.import_module("sglang.merge")
    attention = importlib.import_module("sglang.attention")
    if when == "before":
        change(merge, attention)
    activation = Activation([fix])
    activation.module_loaded("sglang.attention")
    if when == "after":
        change(merge, attention)
    attention.Backend().forward(1)
    state = activation.states[fix.id]
    return state.state, state.reason


def wrapped(function):
    @functools.wraps(function)
    def around(*args):
        return function(*args)

    return around


def instrument(owner, name):
    """As OpenTelemetry and ddtrace do it: what stands there, a static method's descriptor, too, behind a proxy."""
    setattr(owner, name, wrapt.FunctionWrapper(vars(owner)[name], lambda stock, instance, args, kwargs: stock(*args)))


CHANGES = {
    "a function": lambda merge, attention: setattr(merge, "merge", theirs),
    "one that is wrapped": lambda merge, attention: setattr(merge, "merge", wrapped(merge.merge)),
    "the name that another module has imported": lambda merge, attention: setattr(attention, "merge", theirs),
    "a decorated one": lambda merge, attention: setattr(merge, "decorated", theirs),
    "a decorated one that others have imported": lambda merge, attention: setattr(attention, "decorated", theirs),
    "a method": lambda merge, attention: setattr(merge.Kernel, "run", theirs),
    "a method that is wrapped": lambda merge, attention: setattr(merge.Kernel, "run", wrapped(merge.Kernel.run)),
    "a method of an enum": lambda merge, attention: setattr(merge.Mode, "is_verify", theirs),
    "a static method": lambda merge, attention: setattr(merge.Plan, "pages", staticmethod(theirs)),
    "a class method": lambda merge, attention: setattr(merge.Plan, "empty", classmethod(theirs)),
    "a function, by wrapt": lambda merge, attention: instrument(merge, "merge"),
    "a method, by wrapt": lambda merge, attention: instrument(merge.Kernel, "run"),
    "a method that no witness names, by wrapt": lambda merge, attention: instrument(merge.Field, "_find"),
    "a function that no witness names, by wrapt": lambda merge, attention: instrument(merge, "traced"),
    "a static method, by wrapt": lambda merge, attention: instrument(merge.Plan, "pages"),
    "a class method, by wrapt": lambda merge, attention: instrument(merge.Plan, "empty"),
    "a static method, by another of what wrapt wraps": lambda merge, attention: (
        instrument(merge.Plan, "pages"),
        setattr(merge.Plan, "pages", staticmethod(vars(merge.Plan)["pages"])),
    ),
    "a static method that is wrapped": lambda merge, attention: setattr(
        merge.Plan, "pages", staticmethod(wrapped(merge.Plan.pages))
    ),
    "a function, by a module's proxy": lambda merge, attention: setattr(merge, "merge", wrapt.ObjectProxy(types)),
    "a class": lambda merge, attention: setattr(merge, "Kernel", type("Kernel", (merge.Kernel,), {})),
    "a dataclass": lambda merge, attention: setattr(merge, "Plan", type("Plan", (merge.Plan,), {})),
    "by something that can be called": lambda merge, attention: setattr(merge, "merge", functools.partial(merge.merge)),
    "a method of a class with attributes that were set later": lambda merge, attention: setattr(merge.Field, "get", theirs),
    "a private method, by a function of a text": lambda merge, attention: setattr(merge.Field, "_find", eval("lambda self: 0")),
    "by a function of a text": lambda merge, attention: exec("def run(self, x): 0\nmerge.Kernel.run = run", {"merge": merge}),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_witness_that_was_replaced_is_a_conflict(fix, engine, change, when):
    state, reason = state_of(fix, engine, change, when)
    assert state == "conflict" and "sglang." in reason and "replaced by" in reason


def something_else(merge, attention):
    merge.other, merge.Kernel.other, attention.other = theirs, theirs, theirs
    merge.Mode.other, merge.Kernel.__doc__ = theirs, "text"
    merge.cached(1), merge.Plan.empty()


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_an_engine_does_itself_is_none(fix, engine, when):
    assert state_of(fix, engine, something_else, when)[0] == "effective"


@pytest.mark.parametrize("holder", ["merge", "attention"])
def test_our_own_wrapper_on_a_witness_is_none(fix, engine, holder):
    """A witness of one fix may be the target of another; and a module may hold the function from before it was wrapped."""

    def change(merge, attention):
        ours = WrappedTarget(merge.merge, CodePath("sglang.merge", "merge")).function
        (merge if holder == "merge" else attention).merge = ours

    assert state_of(fix, engine, change, "before")[0] == "effective"


def test_a_witness_that_is_loaded_after_arming_is_looked_at_by_the_first_call(fix, engine):
    engine.write("attention", "class Backend:\n    def forward(self, x, scale=2):\n        return x * scale\n")
    engine.judge_as("affected", fix)
    activation = Activation([fix])
    attention = engine.load(activation, "attention")
    importlib.import_module("sglang.merge").merge = theirs
    assert attention.Backend().forward(1) == 2 and activation.states[fix.id].state == "conflict"


def test_a_module_that_no_longer_holds_its_names_is_none(fix, engine):
    """Reloaded half-way, or cleaned up: nothing stands there that could be somebody's."""
    assert state_of(fix, engine, lambda merge, attention: delattr(merge, "chosen"), "after")[0] == "effective"


def test_a_module_in_the_place_of_a_function_is_somebody_elses(fix, engine):
    change = lambda merge, attention: setattr(merge, "merge", types.ModuleType("merge"))  # noqa: E731
    assert state_of(fix, engine, change, "after")[0] == "conflict"


def test_strict_refuses_where_a_witness_was_replaced_before_the_model_is_loaded(fix, engine, monkeypatch):
    monkeypatch.setenv("ATTNFIX_STRICT", "1")
    activation = Activation([fix])
    engine.load(activation, "attention")
    assert not activation.unmet(ENGINES["sglang"])
    importlib.import_module("sglang.merge").Kernel.run = theirs
    assert [state.state for state in activation.unmet(ENGINES["sglang"])] == ["conflict"]
