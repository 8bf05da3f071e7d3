"""Overrides, class attributes, and code that only a structural predicate knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnfix.compat.arming import patch_points
from attnfix.compat.arming.activation import Activation
from attnfix.compat.fix import Attribute, Override, Target

CLASSES = """
class Base:
    waits = True

    def buffers(self):
        return "base"


class Heir(Base):
    def forward(self, x):
        return x


class Other(Base):
    waits = False
"""
CORRECTIONS = """
def forward(call, instance):
    return call() + 100

def buffers(call, instance):
    call.corrected()
    return call() + " and ours"

def broken(call, instance):
    raise ValueError("broken")
"""
HEIR = "sglang.heirs:Heir"


@pytest.fixture
def family(engine):
    engine.write("heirs", CLASSES)
    exec(CORRECTIONS, vars(engine.corrections))  # functions of the module beside which the ledger lies
    targets = (
        Target(engine.corrections.forward, paths=(f"{HEIR}.forward",)),
        Override(engine.corrections.buffers, paths=(f"{HEIR}.buffers",), of=("sglang.heirs:Base.buffers",)),
        Attribute(False, paths=(f"{HEIR}.waits",)),
        Attribute(True, paths=("sglang.heirs:Other.waits",)),
    )
    engine.fix = replace(engine.fix, targets=targets, witnesses=())
    engine.judge_as("affected")
    return engine


def names(module):
    return {name for name in vars(module.Heir) if not name.startswith("__")}


def test_overrides_and_attributes_come_with_the_fix_and_go_with_it(family):
    activation = Activation([family.fix])
    module = family.load(activation, "heirs")
    state = activation.states[family.fix.id]
    assert state.state == "installed", state.reason
    heir = module.Heir()
    assert (heir.forward(1), heir.buffers(), heir.waits, module.Other.waits) == (101, "base and ours", False, True)
    assert (module.Base().buffers(), module.Base.waits) == ("base", True), "the base class is nobody's target"
    assert state.counters.corrections == 1
    state.fail("for the test")
    assert (heir.forward(1), heir.buffers(), heir.waits, module.Other.waits) == (1, "base", True, False)
    assert "waits" not in vars(module.Heir)
    activation._withdraw(state)
    assert names(module) == {"forward"} and not hasattr(vars(module.Heir)["forward"], "__wrapped__")


def test_attributes_wait_until_the_last_target_stands(family):
    planning = Target(family.corrections.plan, paths=("sglang.planning:plan",))
    family.fix = replace(family.fix, targets=(*family.fix.targets, planning))
    family.judge_as("affected")
    activation = Activation([family.fix])
    module = family.load(activation, "heirs")
    heir = module.Heir()
    assert activation.states[family.fix.id].state == "pending"
    assert (heir.buffers(), heir.waits, module.Other.waits) == ("base", True, False)
    family.load(activation, "planning")
    assert (heir.buffers(), heir.waits, module.Other.waits) == ("base and ours", False, True)


def test_an_attribute_changed_by_someone_else_shows_and_is_left_to_them(family):
    activation = Activation([family.fix])
    module = family.load(activation, "heirs")
    module.Heir.waits = "mine"
    assert activation.rows()[0]["state"] == "conflict"
    assert module.Heir.waits == "mine" and module.Other.waits is False and module.Heir().forward(1) == 1


def test_a_method_that_someone_gave_the_heir_is_a_conflict(family):
    import sglang.heirs as heirs

    heirs.Heir.buffers = lambda self: "theirs"
    activation = Activation([family.fix])
    activation.module_loaded("sglang.heirs")
    assert activation.states[family.fix.id].state == "conflict"
    assert heirs.Heir().buffers() == "theirs" and not hasattr(vars(heirs.Heir)["forward"], "__wrapped__") and heirs.Heir.waits


def test_late_when_an_inherited_method_was_captured(family):
    import sglang.heirs as heirs

    captured = [heirs.Heir().buffers]
    activation = Activation([family.fix])
    activation.catch_up()
    assert activation.states[family.fix.id].state == "late" and captured[0]() == "base"
    assert names(heirs) == {"forward"} and not hasattr(vars(heirs.Heir)["forward"], "__wrapped__")


@pytest.mark.parametrize(
    "owner, name",
    [(patch_points, "swap"), (patch_points, "live"), (patch_points, "owner_of"), (patch_points.AttributePoint, "arm")],
)
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_failure_at_any_step_leaves_nothing_half_done(family, monkeypatch, owner, name, at):
    real, count = getattr(owner, name), 0

    def failing(*args, **kwargs):
        nonlocal count
        count += 1
        if count == at:
            raise RuntimeError("injected")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    activation = Activation([family.fix])
    module = family.load(activation, "heirs")
    monkeypatch.undo()
    state, heir = activation.states[family.fix.id], module.Heir()
    seen = (heir.forward(1), heir.buffers(), heir.waits, module.Other.waits)
    assert seen == ((101, "base and ours", False, True) if state.armed else (1, "base", True, False)), state.reason
