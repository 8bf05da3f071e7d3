"""Finders of others, in any order of imports: a program without an engine serves, says nothing of us and has none of our
modules; an import of ours never runs in the middle of another's."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

FINDER = """
import importlib.machinery, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        return {answer}
sys.meta_path.insert(0, Finder())
"""
FINDERS = {
    "setuptools": "import setuptools\n",
    "asks nobody": FINDER.format(answer="importlib.machinery.PathFinder.find_spec(name, path, target)"),
    "has nothing": FINDER.format(answer="None"),
    "has one package": FINDER.format(
        answer="importlib.machinery.PathFinder.find_spec(name, path, target) if 'prometheus' in name else None"
    ),
    "has the engine": FINDER.format(
        answer="importlib.machinery.PathFinder.find_spec(name, path, target) if name.startswith('sglang') else None"
    ),
    "comes again": FINDER.format(answer="sys.meta_path.remove(self) or sys.meta_path.insert(0, self)"),
}
CLIENT = "import prometheus_client, prometheus_client.multiprocess\n"
# Of what our own modules import, and of what runs nested in the import of another
OTHERS = "import concurrent.futures, importlib.resources, importlib.metadata, wave\n"
OURS = "print([name for name in sys.modules if name.partition('.')[0] in ('attnfix', 'wrapt')])\n"
#: What the `.pth` file and the look at a name bring in
HOOK = {"attnfix", "attnfix.bootstrap", "attnfix.bootstrap.import_hook", "attnfix.bootstrap.target_modules"}


def ran(code, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")} | variables
    done = subprocess.run([sys.executable, "-c", "import sys\n" + code], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


def is_installed():
    return ran("print('attnfix.bootstrap.import_hook' in sys.modules)")[1] == ["True"]


@pytest.mark.parametrize("strict", ["0", "1"])
@pytest.mark.parametrize("name", FINDERS)
def test_a_program_without_an_engine_is_left_alone_in_any_order_of_imports(name, strict):
    if not is_installed():
        pytest.skip("the .pth file is not in this environment")
    for parts in itertools.permutations((FINDERS[name], CLIENT, OTHERS)):
        code, out, err = ran("".join(parts) + "import wave, sqlite3\n" + OURS, ATTNFIX_STRICT=strict)
        assert (code, err) == (0, ""), parts
        (line,) = out
        assert set(eval(line)) <= HOOK, parts


TARGET = "sglang.srt.layers.attention.trtllm_mla_backend"
STATES = "import attnfix\nprint({row['state'] for row in attnfix.status() if row['fix'] == 'sglang.zero-kv-rows'})\n"


@pytest.fixture
def engine(tmp_path):
    """A folder with a target module of an engine, without any code."""
    folder = tmp_path
    *packages, module = TARGET.split(".")
    for package in packages:
        folder /= package
        folder.mkdir()
        (folder / "__init__.py").touch()
    (folder / f"{module}.py").touch()
    return {"PYTHONPATH": str(tmp_path), "ATTNFIX_RUN_DIR": str(tmp_path / "run"), "VLLM_PLUGINS": ""}


# A finder that answers for everything leaves us what nobody has
ASKED = "try: import nobody_has_this\nexcept ImportError: pass\nimport sqlite3\n"


@pytest.mark.parametrize("name", ["asks nobody", "has the engine", "comes again"])
def test_what_was_loaded_past_us_is_dealt_with_in_any_order_of_imports(engine, name):
    """Never in the midst of a module that is needed for it: each import of OTHERS may be the one that tells."""
    for parts in itertools.permutations((FINDERS[name], CLIENT, OTHERS, f"import {TARGET}\n")):
        code, (state,), err = ran("".join(parts) + ASKED + STATES, **engine)
        assert code == 0 and "not active" not in err and state == "{'unknown source'}", (parts, err)


MIDST = """
import types
import attnfix.bootstrap.process as process
process.catch_up = lambda: told.append("loads" in vars(sys.modules["json"]))
told = []
from attnfix.bootstrap import import_hook
sys.modules["sglang"] = types.ModuleType("sglang")
for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
    del sys.modules[name]
import_hook._passed_by.add("sglang")
import json
import wave
print(told)
"""


def test_catching_up_waits_for_the_end_of_an_import_of_the_standard_library():
    """`json` imports `json.decoder`, whose end is no moment for us: what we import may need `json`, which is half-done."""
    assert ran(MIDST)[1] == ["[True]"]


@pytest.mark.parametrize("name", ["winreg", "attnfix.extra"])
def test_a_name_that_a_program_forbids_does_not_keep_us_from_catching_up(name):
    """`None` in `sys.modules` says that there is no such module: none is half-done."""
    forbids = f"sys.modules[{name!r}] = None\n"
    assert ran(forbids + MIDST)[1] == ["[True]"]


BORROWED = (
    FINDER.format(answer="None")
    + """
import wave
taken = sys.meta_path.pop(0)
print(type(taken).__module__, any(type(finder).__module__ == "attnfix.bootstrap.import_hook" for finder in sys.meta_path))
"""
)


def test_a_program_without_an_engine_gets_back_the_finder_that_it_put_first():
    """Who puts one there for an import takes the first out again, whatever it is."""
    if not is_installed():
        pytest.skip("the .pth file is not in this environment")
    assert ran(BORROWED)[1] == ["__main__ True"]


def test_the_first_place_is_taken_again_for_the_engine(engine):
    """Before its first module, and once it is there."""
    first = "import sglang\nprint(type(sys.meta_path[0]).__module__)\n"
    again = FINDER.format(answer="None") + "import wave\nprint(type(sys.meta_path[0]).__module__)\n"
    assert ran(FINDER.format(answer="None") + first + again, **engine)[1] == 2 * ["attnfix.bootstrap.import_hook"]


NOWHERE = """
sys.modules["sglang"] = __import__("types").ModuleType("sglang")
ours = next(finder for finder in sys.meta_path if type(finder).__module__ == "attnfix.bootstrap.import_hook")
sys.meta_path[:], finders = [], sys.meta_path[:]
print(ours.find_spec("wave"))
"""


def test_a_finder_of_ours_that_stands_nowhere_has_nothing():
    """As a tool asks that has saved the finders: with an empty list there is none before us."""
    assert ran("import attnfix.bootstrap.import_hook\n" + NOWHERE)[1:] == (["None"], "")


REFUSED = """
import gc, importlib.machinery, weakref

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name == "{target}":
            raise ImportError(name)

class Held:
    pass

def imports(held):
    try:
        import {target}
    except ImportError as error:
        return str(error)

import {package}
sys.meta_path.append(Refuses())
sys.meta_path.insert(1, sys.meta_path.pop())
gc.disable()
held = Held()
known = weakref.ref(held)
print(imports(held))
del held
print(known())
"""


def test_an_error_of_another_finder_keeps_nothing_of_who_imports_alive(engine):
    code = REFUSED.format(target=TARGET, package=TARGET.rpartition(".")[0])
    assert ran("import attnfix.bootstrap.import_hook\n" + code, **engine)[1:] == ([TARGET, "None"], "")


TAKEN = """
ours = next(finder for finder in sys.meta_path if type(finder).__module__ == "attnfix.bootstrap.import_hook")
sys.meta_path = [finder for finder in sys.meta_path if finder is not ours]
"""


def test_a_finder_of_ours_that_was_taken_out_is_back_with_the_engines_call(engine):
    told = f"import {TARGET}\nfrom attnfix.bootstrap import entry_points\nentry_points.activate()\n"
    code, (state,), _ = ran(TAKEN + told + STATES, **engine)
    assert (code, state) == (0, "{'unknown source'}")


def test_a_finder_of_ours_that_is_taken_out_while_the_engine_is_imported_is_back_after_it(engine, tmp_path):
    (tmp_path / "sglang/__init__.py").write_text("import sys\n" + TAKEN)
    code, (state,), _ = ran(f"import {TARGET}\n" + STATES, **engine)
    assert (code, state) == (0, "{'unknown source'}")


EVERY_STEP = """
import os
import sglang.srt.layers.attention
import attnfix, attnfix.patches.sglang.catalogue, attnfix.compat.arming.activation
from attnfix.bootstrap import import_hook

def interrupted(at):
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename != import_hook.__file__:
            return None
        if event == "line":
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        import {target}
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False

said, at = [], 0
while "none" not in said:
    at += 1
    read, write = os.pipe()
    if not os.fork():
        hit = interrupted(at)
        import {target}
        state = next(row["state"] for row in attnfix.status() if row["fix"] == "sglang.zero-kv-rows")
        os.write(write, (state if hit else "none").encode())
        os._exit(0)
    os.close(write)
    said.append(os.read(read, 100).decode())
    os.close(read)
    os.wait()
print(len(said) > 20, sorted(set(said)))
"""


def test_an_interrupt_at_any_step_of_the_hook_leaves_no_module_past_us(engine):
    """At each line of it in turn: the module that the program then imports again is dealt with, or its fix says `failed`."""
    code, out, err = ran(EVERY_STEP.format(target=TARGET), **engine)
    assert (code, out) == (0, ["True ['none', 'unknown source']"]), err[-400:]


JOINED = (
    "from prometheus_client import REGISTRY\n"
    "print(sum(type(one).__module__.startswith('attnfix') for one in REGISTRY._collector_to_names))\n"
)


@pytest.mark.parametrize(
    "order, pages", [((CLIENT,), 0), ((CLIENT, f"import {TARGET}\n"), 1), ((f"import {TARGET}\n", CLIENT), 1)]
)
def test_the_page_is_joined_once_an_engine_is_there(engine, order, pages):
    assert ran("".join(order) + JOINED, **engine)[1] == [str(pages)]
