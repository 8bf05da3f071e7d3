"""An engine whose files are replaced under a live process: what runs must be what was judged."""

from __future__ import annotations

import importlib
import logging
import math
import os
import py_compile
import sys
import time
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source, module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType

import pytest

from attnfix.compat.arming.activation import Activation
from attnfix.compat.fix import CodePath
from attnfix.compat.gate import judge, loaded_code, source_files
from attnfix.compat.gate.digest import definitions
from tests.robustness import small_engine

NEWER = "def plan(x):\n    return x + 2\n"
CALLER = "def call(x):\n    return x\n"


def also_affected(engine, fix):
    """The ledger knows the code as it stands now, too."""
    small_engine.judge(engine.folder, fix, release="2.0", also=True)


@pytest.fixture
def witnessed(engine):
    """The small fix with a witness in a module that is no target's."""
    engine.write("caller", CALLER)
    fix = replace(engine.fix, witnesses=("sglang.caller:call",))
    engine.judge_as("affected", fix)
    return fix


@pytest.mark.parametrize("known", [False, True])
def test_replaced_between_two_targets(engine, known):
    activation = Activation([engine.fix])
    attention = engine.load(activation, "attention")
    time.sleep(0.02)
    engine.write("planning", NEWER)
    if known:
        also_affected(engine, engine.fix)
    planning = engine.load(activation, "planning")
    (row,) = activation.rows()
    assert row["state"] == "conflict" and "restart" in row["reason"]
    assert not hasattr(planning.plan, "__wrapped__") and attention.Backend().forward(1) == 2


def test_replaced_between_the_import_and_the_gate(engine):
    """Same file, same line, code that the ledger calls affected, too: and not what was imported."""
    activation = Activation([engine.fix])
    attention = engine.load(activation, "attention")
    activation._verdicts.clear()
    planning = importlib.import_module("sglang.planning")
    engine.write("planning", NEWER)
    also_affected(engine, engine.fix)
    activation.module_loaded("sglang.planning")
    (row,) = activation.rows()
    assert row["state"] == "conflict" and "restart" in row["reason"], row
    assert planning.plan(1) == 2 and attention.Backend().forward(1) == 2


def test_a_witness_that_was_loaded_before_it_was_replaced(engine, witnessed):
    import sglang.caller  # noqa: F401

    time.sleep(0.02)
    engine.write("caller", CALLER.replace("return x", "return x * 2"))
    also_affected(engine, witnessed)
    activation = Activation([witnessed])
    engine.load(activation, "attention", "planning")
    (row,) = activation.rows()
    assert row["state"] == "conflict" and "restart" in row["reason"]


@pytest.mark.parametrize("imported, state, result", [("before", "effective", 102), ("after", "conflict", 2)])
def test_replaced_after_arming_is_noticed_at_the_first_call(engine, witnessed, caplog, imported, state, result):
    """A module that was loaded runs as it was judged; one that is loaded later is code that nobody has judged."""
    activation = Activation([witnessed])
    if imported == "before":
        importlib.import_module("sglang.caller")
    backend = engine.load(activation, "attention").Backend()
    engine.load(activation, "planning")
    assert activation.rows()[0]["state"] == "installed"
    time.sleep(0.02)
    engine.write("caller", CALLER.replace("return x", "return x * 2"))
    importlib.import_module("sglang.caller")
    with caplog.at_level(logging.WARNING):
        assert backend.forward(1) == backend.forward(1) == result
    assert activation.rows()[0]["state"] == state
    assert caplog.text.count("restart it") == 1


def test_a_file_that_was_only_touched(engine, witnessed, caplog):
    activation = Activation([witnessed])
    backend = engine.load(activation, "attention").Backend()
    time.sleep(0.02)
    for name in ("attention", "planning", "caller"):
        os.utime(engine.root / f"{name}.py")
    engine.load(activation, "planning")
    importlib.import_module("sglang.caller")
    assert backend.forward(1) == 102, activation.rows()


def test_a_file_that_was_touched_after_arming_is_not_told_as_replaced(engine, witnessed, caplog):
    """As by uv, whose installations share their files by hard links: another one changes when they were last touched."""
    activation = Activation([witnessed])
    importlib.import_module("sglang.caller")
    backend = engine.load(activation, "attention").Backend()
    engine.load(activation, "planning")
    time.sleep(0.02)
    os.link(engine.root / "caller.py", engine.folder / "caller.py")
    with caplog.at_level(logging.WARNING):
        assert backend.forward(1) == 102
    assert activation.rows()[0]["state"] == "effective" and "restart it" not in caplog.text


def test_the_version_is_that_of_the_code_in_memory(engine):
    from attnfix.compat.engines import ENGINES, version_of

    metadata = engine.folder / "sglang-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 1.0\n")
    import sglang  # noqa: F401

    assert version_of(ENGINES["sglang"]) == "1.0"
    metadata.write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 2.0\n")
    assert version_of(ENGINES["sglang"]) == "1.0"


def code_changed(function):
    function.__code__ = function.__code__.replace(co_consts=(*function.__code__.co_consts[:-1], 3))


def other_default(function):
    function.__defaults__ = (7,)


def no_default(function):
    function.__defaults__ = None


@pytest.mark.parametrize("change", [code_changed, other_default, no_default])
def test_code_or_defaults_that_were_changed_in_place(engine, monkeypatch, change):
    """Before attnfix was active; the files are older than the process, and what is in memory still says that it is theirs."""
    engine.write("planning", "def plan(x, by=1):\n    return x + by + 1\n")
    engine.judge_as("affected")
    monkeypatch.setattr(loaded_code, "_BEGAN", math.inf)
    planning = importlib.import_module("sglang.planning")
    change(planning.plan)
    activation = Activation([engine.fix])
    engine.load(activation, "attention")
    activation.catch_up()
    assert activation.rows()[0]["state"] == "conflict", activation.rows()
    assert not hasattr(planning.plan, "__wrapped__")


@pytest.mark.parametrize("written", ["1", "-1", "None", "(1, 'a')", "len('abc')", "1.5, *, c=2", "b'x'", "1, c=True"])
def test_defaults_as_they_are_written(engine, monkeypatch, written):
    engine.write("planning", f"def plan(x, by={written}):\n    return x + 1\n")
    engine.judge_as("affected")
    monkeypatch.setattr(loaded_code, "_BEGAN", math.inf)
    planning = importlib.import_module("sglang.planning")
    activation = Activation([engine.fix])
    engine.load(activation, "attention")
    activation.catch_up()
    assert activation.rows()[0]["state"] == "installed", activation.rows()
    assert planning.plan(1) == 1002


@pytest.mark.parametrize("makes, state", [(b"return x", "installed"), (b"return +x", "conflict")])
def test_a_witness_from_a_loader_that_is_not_pythons_own(engine, witnessed, monkeypatch, makes, state):
    """Its file is older than the process; what the loader made of it is compared."""
    monkeypatch.setattr(loaded_code, "_BEGAN", math.inf)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    class Loader(SourceFileLoader):
        def source_to_code(self, data, path, **how):
            return super().source_to_code(data.replace(b"return x", makes), path, **how)

    importlib.import_module("sglang")
    loader = Loader("sglang.caller", str(engine.root / "caller.py"))
    caller = module_from_spec(spec_from_file_location("sglang.caller", loader.path, loader=loader))
    monkeypatch.setitem(sys.modules, "sglang.caller", caller)
    loader.exec_module(caller)
    activation = Activation([witnessed])
    engine.load(activation, "attention", "planning")
    assert activation.rows()[0]["state"] == state, activation.rows()


SOURCE = """
from __future__ import annotations
import math, contextlib
if math.pi:
    import os.path as path

class Base:
    def f(self): return 1

class Outer(Base):
    class Inner:
        def g(self, x: Unknown = 1, *, y=2):
            "Documented."
            return [self.__hidden for _ in (math.sqrt(x), path.join(str(y), "a"))] if x in {1, 2, 3} else -0.0
    @property
    def p(self): return 1
    def f(self):
        with contextlib.suppress(ValueError):
            return super().f() + __class__.__name__ + (lambda: self.__private)()

if path:
    def twice(): return 1
else:
    def twice(): return 2

class Set:
    def f(self, x=1): return super().f(x)
Set.limit = 3
class Later:
    def f(self): return 1
Later.locked = True
"""


def code_of(source, qualname, tmp_path):
    (tmp_path / "module.py").write_text(source)
    tree = judge.parsed((tmp_path / "module.py").read_bytes())
    return [code for chain in definitions(tree, qualname) for code in loaded_code._codes(tree, chain)]


@pytest.mark.parametrize("qualname", ["Outer.Inner.g", "Outer.f", "Outer.p", "twice", "Base.f", "Set.f", "Later.f"])
def test_the_code_of_one_definition_is_that_of_an_import(tmp_path, qualname):
    whole = compile(SOURCE, "elsewhere.py", "exec", dont_inherit=True)
    expected = list(loaded_code._named(whole, qualname.split(".")))
    assert expected and code_of(SOURCE, qualname, tmp_path) == expected
    changed = SOURCE.replace("return 1", "return 3").replace("{1, 2, 3}", "{1, 2}").replace("__private", "__other")
    changed = changed.replace("super().f(x)", "super().f(-x)")
    assert code_of(changed, qualname, tmp_path) != expected


def test_a_class_or_module_witness_is_compared_function_by_function(engine):
    import sglang.attention as attention

    read = source_files.Sources(engine.root)
    for qualname in ("", "Backend", "Backend.forward"):
        assert not loaded_code.holds_other_code(CodePath("sglang.attention", qualname), attention, read)
    attention.Backend.foreign = lambda self: 1
    assert not loaded_code.holds_other_code(CodePath("sglang.attention", "Backend"), attention, read), "not the module's own"
    source = (engine.root / "attention.py").read_text()
    engine.write("attention", source.replace("self.captured = self.forward", "self.captured = None"))
    assert loaded_code.holds_other_code(CodePath("sglang.attention", "Backend"), attention, source_files.Sources(engine.root))
    assert not loaded_code.holds_other_code(
        CodePath("sglang.attention", "Backend.forward"), attention, source_files.Sources(engine.root)
    )


OTHERS = """
import dataclasses

@dataclasses.dataclass
class Plan:
    lens: int = 0

    def pages(self):
        return self.lens // 4

class Field:
    locked = False

    def get(self, default=1):
        return self.locked or default

Field.locked = True
"""


@pytest.mark.parametrize("qualname", ["Plan", "Field", "Field.get", ""])
def test_what_the_engine_itself_makes_of_a_class_is_no_other_code(engine, qualname):
    """A dataclass's own methods, which before Python 3.11 have their place's name; attributes that are set after the class."""
    engine.write("others", OTHERS)
    others = importlib.import_module("sglang.others")
    made = others.Plan.__init__.__code__
    if hasattr(made, "co_qualname"):
        others.Plan.__init__.__code__ = made.replace(co_qualname="Plan.__init__")  # as 3.10 tells it
    assert not loaded_code.holds_other_code(CodePath("sglang.others", qualname), others, source_files.Sources(engine.root))


@pytest.mark.parametrize("qualname", ["Plan", "Field", "Field.get"])
def test_and_of_another_file_it_is(engine, qualname):
    engine.write("others", OTHERS)
    others = importlib.import_module("sglang.others")
    engine.write("others", OTHERS.replace("// 4", "// 8").replace("default=1", "default=2"))
    assert loaded_code.holds_other_code(CodePath("sglang.others", qualname), others, source_files.Sources(engine.root))


def test_which_file_is_younger_than_this_process(tmp_path):
    """Also one that was moved or linked there: its own times are then older."""
    old = Path(loaded_code.__file__).resolve()
    root = old.parent
    assert not loaded_code.younger_than_process(Path(os.__file__), Path(os.__file__).parent)
    (tmp_path / "new").touch()
    assert loaded_code.younger_than_process(tmp_path / "new", tmp_path)
    (tmp_path / "linked").symlink_to(root)
    assert loaded_code.younger_than_process(tmp_path / "linked" / old.name, tmp_path / "linked")
    (tmp_path / "above").symlink_to(root.parent)
    assert loaded_code.younger_than_process(tmp_path / "above" / root.name / old.name, tmp_path / "above" / root.name)


class Proxy:
    """As the wrappers of wrapt 1's C extension: what it stands for by `isinstance`, and nothing to look into."""

    def __init__(self, kind):
        self.kind = kind

    __class__ = property(lambda self: self.kind)

    @property
    def __dict__(self):
        raise TypeError("this __dict__ descriptor does not support 'Proxy' objects")


@pytest.mark.parametrize("kind", [FunctionType, type])
def test_what_a_wrapper_stands_for_is_not_compared(engine, kind):
    attention = importlib.import_module("sglang.attention")
    read = source_files.Sources(engine.root)
    attention.Backend.forward = Proxy(kind)
    assert not loaded_code.holds_other_code(CodePath("sglang.attention", "Backend.forward"), attention, read)
    assert not loaded_code.holds_other_code(CodePath("sglang.attention", "Backend"), attention, read)
    attention.Backend = Proxy(kind)
    assert not loaded_code.holds_other_code(CodePath("sglang.attention", "Backend.forward"), attention, read)


@pytest.fixture
def compiled(engine, monkeypatch):
    """`compiled(module, source, mode)`: compiled code of `source` in the place of the module's, whose file stays as it is. The
    files here are as old as the test; an installed engine's are older than its process."""
    monkeypatch.setattr(loaded_code, "younger_than_process", lambda path, root: False)

    def compiled(module, source, mode):
        path = engine.root / f"{module}.py"
        stock, times = path.read_bytes(), path.stat()
        path.write_text(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        py_compile.compile(str(path), cfile=cache_from_source(str(path)), doraise=True, invalidation_mode=mode)
        path.write_bytes(stock)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    return compiled


UNCHECKED, CHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH, py_compile.PycInvalidationMode.CHECKED_HASH
OTHER_PLAN = "\ndef plan(x):\n    return x - 1\n"  # on the line of the judged one


def test_compiled_code_of_a_target_that_python_never_compares(engine, compiled):
    compiled("planning", OTHER_PLAN, UNCHECKED)
    activation = Activation([engine.fix])
    planning = engine.load(activation, "attention", "planning")
    (row,) = activation.rows()
    assert planning.plan(1) == 0, "what was compiled runs, unpatched"
    assert row["state"] == "conflict" and "without comparing" in row["reason"]


def test_compiled_code_of_a_witness_that_python_never_compares(engine, witnessed, compiled):
    compiled("caller", CALLER.replace("return x", "return -x"), UNCHECKED)
    import sglang.caller

    activation = Activation([witnessed])
    engine.load(activation, "attention", "planning")
    (row,) = activation.rows()
    assert sglang.caller.call(1) == -1 and row["state"] == "conflict" and "without comparing" in row["reason"]


@pytest.mark.parametrize("mode", [UNCHECKED, CHECKED])
def test_compiled_code_of_the_file_is_what_was_judged(engine, witnessed, compiled, mode):
    for name in ("attention", "planning", "caller"):
        compiled(name, (engine.root / f"{name}.py").read_text(), mode)
    import sglang.caller  # noqa: F401

    activation = Activation([witnessed])
    engine.load(activation, "attention", "planning")
    assert activation.rows()[0]["state"] == "installed"


def test_a_file_whose_compiled_code_python_compares_is_not_parsed(engine, compiled, monkeypatch):
    for name in ("attention", "planning"):
        compiled(name, (engine.root / f"{name}.py").read_text(), CHECKED)
    monkeypatch.setattr(judge, "parsed", lambda data: pytest.fail("parsed"))
    activation = Activation([engine.fix])
    engine.load(activation, "attention", "planning")
    assert activation.rows()[0]["state"] == "installed"
