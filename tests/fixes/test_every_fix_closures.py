"""No function of a fix is handed to the engine unguarded: `Call.guard` and `Call.watch` keep its errors from the engine.

Whatever a correction hands over, it names: a function of its module, a function within a function, a lambda, a method, a
partial. Each place where such a thing is named and not called is looked at. It stands in a call of `guard` or `watch`, in
`UNGUARDED` of its fix's data module, or, of shared modules, in `KEPT`. Both say why the engine never calls it or why nothing
of ours can fail in it. A class with methods is one, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import attnfix.patches
from tests.fixes.rows import UNGUARDED

ROOT = Path(attnfix.patches.__file__).parent
FILES = sorted([*ROOT.glob("*/*/wrap.py"), *ROOT.glob("*/shared/*.py"), *ROOT.glob("shared/*.py")])
_GUARDS = {"guard", "watch"}
#: Functions that call what they are given, at once
_AT_ONCE = {"map", "sorted", "min", "max", "filter", "next", "getattr", "isinstance"}
#: What Python calls to make an object, or to read an attribute of one that the engine asks for
_PLAIN = {"__init__", "__new__", "__getattr__", "__class__"}

#: Module and place -> why it needs no guard: of modules that fixes share, and UNGUARDED of each fix's data module
KEPT = {
    **UNGUARDED,
    "shared/rebound:_Globals.__missing__": "one look-up in the engine's own globals, whose KeyError is Python's NameError",
    "vllm/shared/dcp_lse_base:run.see_context.<lambda>": "lse_base calls it, within what call.watch calls",
    "vllm/shared/dcp_lse_base:run.see_new_tokens.<lambda>": "lse_base calls it, within what call.watch calls",
    "vllm/shared/dcp_lse_base:run.merge.<lambda>": "lse_base calls it, within what call.guard calls",
    "sglang/shared/flashinfer_kernels:serve._end_without": "a thread of the compiling process, in which no engine runs",
    "sglang/shared/flashinfer_kernels:serve._terminated": "a signal of the compiling process, in which no engine runs",
    "vllm/shared/adapter_paths:AdapterPaths.had_another": "looks and corrections alone call it",
    "vllm/shared/compiled_code:ChangedCode.key": "corrections alone call it",
    "vllm/shared/unpadded:Always.__getitem__": "a number",
}


def _functions(within: ast.AST) -> set[str]:
    """Of a module or a function; of its classes, methods are none."""
    if isinstance(within, ast.Module):
        return {node.name for node in within.body if isinstance(node, ast.FunctionDef)}
    return {node.name for node in ast.walk(within) if isinstance(node, ast.FunctionDef) and node is not within}


def _imported(tree: ast.Module) -> set[str]:
    """Functions and modules of ours; their names begin with a small letter."""
    imports = (
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnfix")
    )
    return {alias.asname or alias.name for node in imports for alias in node.names if alias.name.islower()}


def module_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return str(relative.parent if path.name == "wrap.py" else relative.with_suffix(""))


class Handed(ast.NodeVisitor):
    """Where a module names a function without calling it, and methods that somebody else can call."""

    def __init__(self, tree: ast.Module):
        self.found: dict[str, int] = {}
        self._where: list[str] = []
        #: Functions that can be named here, the innermost last, each with names that hide those further out
        self._functions: list[tuple[set[str], set[str]]] = [({*_functions(tree), *_imported(tree)}, set())]
        self._methods: set[str] = set()
        self._passed: set[ast.AST] = set()
        self.visit(tree)

    def _note(self, name: str, node: ast.AST) -> None:
        if node not in self._passed:
            self.found[".".join([*self._where, name])] = node.lineno

    def _within(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self._where.append(node.name)
        self.generic_visit(node)
        self._where.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self._functions.append((_functions(node), {argument.arg for argument in arguments}))
        for default in [*node.args.defaults, *(one for one in node.args.kw_defaults if one)]:
            self.visit(default)
        self._where.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._where.pop()
        self._functions.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        tuples = any(getattr(base, "id", "") == "NamedTuple" for base in node.bases)
        methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
        former, self._methods = self._methods, set(methods)
        self._where.append(node.name)
        for name, method in methods.items():
            is_property = any(getattr(decorator, "id", "") == "property" for decorator in method.decorator_list)
            if not (tuples or is_property or name in _PLAIN or name in self._guarded_by_init(node)):
                self._note(name, method)
        for statement in node.body:
            self.visit(statement)
        self._where.pop()
        self._methods = former

    @staticmethod
    def _guarded_by_init(node: ast.ClassDef) -> set[str]:
        """Methods that the class itself hands to a guard."""
        calls = (one for one in ast.walk(node) if isinstance(one, ast.Call) and getattr(one.func, "attr", "") in _GUARDS)
        return {argument.attr for call in calls for argument in call.args if isinstance(argument, ast.Attribute)}

    def visit_Call(self, node: ast.Call) -> None:
        self._passed.add(node.func)
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _GUARDS or name in _AT_ONCE:
            self._passed.update(node.args)
        if name in ("sorted", "min", "max"):
            self._passed.update(keyword.value for keyword in node.keywords)
        if name == "partial":
            self._note("partial", node)
        self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._note("<lambda>", node)
        self.generic_visit(node)

    def _is_function(self, name: str) -> bool:
        for functions, hidden in reversed(self._functions):
            if name in functions or name in hidden:
                return name in functions
        return False

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and self._is_function(node.id):
            self._note(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """A method of one's own, or a function of a module of ours."""
        name = getattr(node.value, "id", "")
        if (name == "self" and node.attr in self._methods) or (self._is_function(name) and node.attr.islower()):
            self._note(f"{name}.{node.attr}" if name != "self" else node.attr, node)
        if not name:
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)


def unguarded(source: str) -> dict[str, int]:
    return Handed(ast.parse(source)).found


def everywhere() -> Iterator[tuple[str, str]]:
    for path in FILES:
        for name in unguarded(path.read_text()):
            yield module_of(path), name


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_what_a_fix_hands_to_the_engine_is_guarded(path):
    module = module_of(path)
    left = {f"{module}:{name}": line for name, line in unguarded(path.read_text()).items() if f"{module}:{name}" not in KEPT}
    assert not left, f"hand these to call.guard or call.watch, or say in UNGUARDED why not: {left}"


def test_each_exception_is_of_something():
    assert KEPT.keys() - {f"{module}:{name}" for module, name in everywhere()} == set()


@pytest.mark.parametrize(
    "source",
    [
        "def correct(call):\n    def ours(): pass\n    with attribute(x, 'run', ours): call()",
        "def correct(call):\n    def ours(): pass\n    x.run = ours",
        "def correct(call):\n    setattr(x, 'run', lambda: 1)",
        "def ours(): pass\ndef correct(call):\n    call.run(rebound(f, kernel=ours))",
        "def ours(): pass\ndef correct(call):\n    call.run(rebound(f, **{'kernel': ours}))",
        "def make():\n    def ours(): pass\n    return ours",
        "from attnfix.patches.shared import tools\ndef correct(call):\n    x.run = tools.ours",
        "from attnfix.patches.shared.tools import ours\ndef correct(call):\n    x.run = ours",
        "def correct(call):\n    call(kernel=partial(kernel, 1))",
        "class Told:\n    def run(self): pass",
        "class Told:\n    def __call__(self): pass",
        "class Told:\n    def _run(self): pass\n    def __init__(self, parts): parts.run = self._run",
        "def ours(): pass\ndef correct(call, made=ours): pass",
        "def correct(call):\n    def ours(): pass\n    other = ours\n    call.guard(other, stock)",
    ],
)
def test_every_way_to_hand_one_over_is_seen(source):
    assert unguarded(source)


@pytest.mark.parametrize(
    "source",
    [
        "def correct(call):\n    def ours(): pass\n    x.run = call.guard(ours, x.run)",
        "def correct(call):\n    x.run = call.watch(x.run, lambda result: 1)",
        "def ours(): pass\ndef correct(call):\n    ours()",
        "from attnfix.patches.shared import tools\ndef correct(call):\n    tools.ours(tools.NAME)",
        "def ours(): pass\ndef correct(call, ours):\n    x.number = ours",
        "class Told:\n    def __init__(self, call): self.run = call.guard(self.mine, self.run)\n    def mine(self): pass",
    ],
)
def test_what_is_guarded_or_called_is_not(source):
    assert not unguarded(source)
