"""A look that may run alone (ATTNFIX=observe) looks, and nothing else: each is read, with the functions of ours that it calls.

What runs it in real releases beside an untouched engine: tests/integration/test_observe.py.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from attnfix.compat.fix import Attribute
from attnfix.patches.catalogue import FIXES

WRITES, STORED, READS = "writes to an object of the engine", "goes by what a correction stored", "reads the device"
_WRITING = {"setattr", "__setattr__", "delattr", "setdefault", "update", "append", "pop", "popleft", "copy_", "fill_", "zero_"}
#: Of a `Correction`: what was measured by corrections before, or is kept by the look
_KEPT = {"observe", "observation", "left_alone"}
#: Of a tensor: the host waits for its values
_READING = {"item", "tolist", "cpu", "numpy", "any", "all", "max", "min", "nonzero", "sum"}
#: Looks that call one of these on values of the host: where they come from
ON_THE_HOST = {
    "sglang.fa3-dp-padding": "extend_seq_lens_cpu, a list or a tensor of the host",
    "vllm.gdn-launch-assert": "tensors whose names end in _cpu, as NumPy arrays",
    "vllm.gdn-uniform-decode": "NumPy arrays",
    "vllm.gdn-token-order": "a tensor whose name ends in _cpu, as a NumPy array",
    "vllm.fa2-cascade": "seq_lens_cpu, a tensor of the host",
    "vllm.undrafted-hybrid-row": "NumPy arrays",
    "vllm.mamba2-undrafted-step": "NumPy arrays",
    "vllm.mamba2-short-chunk": "NumPy arrays, and tensors whose names end in _cpu",
    "vllm.dummy-draft-kv": "the NumPy side of a buffer",
    "vllm.empty-context-chunks": "seq_lens, a tensor of the host",
    "vllm.dcp-captured-context": "tensors of the host, from fields whose names say so",
}


def reached(look: Any, home: str) -> list[FunctionType]:
    """The look and every function in files under `home` that it calls, by the names in its code."""
    found: list[FunctionType] = []
    waiting = [look]
    while waiting:
        one = inspect.unwrap(waiting.pop())
        if isinstance(one, FunctionType) and one not in found and home in one.__code__.co_filename:
            found.append(one)
            waiting += _named(one, home)
    return found


def _named(function: FunctionType, home: str) -> Iterator[Any]:
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    for value in (function.__globals__.get(name) for name in names):
        if isinstance(value, ModuleType) and home in (getattr(value, "__file__", None) or ""):
            yield from (vars(value).get(name) for name in names)
        elif callable(value):
            yield value


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def does(look: Any, home: str = "patches") -> set[str]:
    """What a look does beside looking."""
    functions = reached(look, home)
    return {found for function in functions for node in _nodes(function) if (found := _beside(node, function.__globals__))}


def _nodes(function: FunctionType) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))


def _beside(node: ast.AST, names: dict[str, Any]) -> str | None:
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            return WRITES
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _WRITING:
            return WRITES
        case ast.Call(func=ast.Attribute(attr=name)) if name in _READING:
            return READS
        case ast.Attribute(attr=name) if name in _KEPT:
            return STORED
        case ast.Name(id=name) if "attnfix_" in str(names.get(name)):
            return STORED
    return None


def looks(fix) -> list[Any]:
    return [target.needed for target in fix.targets if not isinstance(target, Attribute) and target.needed]


def found(fix) -> set[str]:
    return {each for look in looks(fix) for each in does(look)} - ({READS} if fix.id in ON_THE_HOST else set())


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_a_fix_is_observable_where_its_looks_only_look(fix):
    if fix.unobservable is None:
        assert looks(fix) and not found(fix)
    elif fix.look_does:
        assert found(fix), f"its looks only look: nothing to say of {fix.look_does}"


def test_most_fixes_are_observable_and_some_are_not():
    assert 0 < sum(fix.unobservable is not None for fix in FIXES) < len(FIXES) / 2


def memo(target, instance):
    return _remember(instance)


def _remember(instance):
    instance.attnfix_seen = True
    return True


def by_name(target, instance):
    object.__setattr__(instance, "seen", 1)


def in_a_table(target, instance, batch):
    batch.kept["seen"] = 1


def in_its_variables(target, instance):
    vars(instance).update(seen=1)


def waits(target, instance, lens):
    return bool((lens == 0).any())


def measured(target, instance):
    return "path" not in target.left_alone


_MARK = "attnfix_mark"


def marked(target, instance):
    return hasattr(instance, _MARK)


@pytest.mark.parametrize(
    "look, what",
    [
        (memo, WRITES), (by_name, WRITES), (in_a_table, WRITES), (in_its_variables, WRITES), (waits, READS), (measured, STORED),
        (marked, STORED),
    ],
)  # fmt: skip
def test_a_look_that_does_more_is_caught(look, what):
    assert what in does(look, home=__file__)
