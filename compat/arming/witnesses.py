"""Whether the witnesses in this process are the code that was judged: of the file that the gate has read, replaced by nobody.

A plugin that corrects the same bug at another function, which is no target but a witness, would correct twice with us. What a
function says of itself decides, its file and name; of a decorated one, the line too. A file is parsed only where
something still looks foreign.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from types import FunctionType, ModuleType
from typing import Any

from ..fix import CodePath, Judgeable
from ..gate import judge, loaded_code, module_lookup, source_files
from ..gate.digest import definitions
from ..status.fix_state import CONFLICT
from . import global_names
from .patch_points import Refused, origin, same_file, says_so
from .wrapper import WrappedTarget

_NONE = object()
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Decorators that leave the function as it is, behind `__func__`
_TRANSPARENT = frozenset({"staticmethod", "classmethod"})
_DESCRIPTORS = (staticmethod, classmethod)
_DEEP = 8  # how far in it is looked: a chain may be a circle
#: Where decorators keep what they were put around: functools, Triton, property, cached_property
_HOLDS = ("__wrapped__", "__func__", "fn", "fget", "func")


def check_files(verdict: judge.Verdict, sources: source_files.Sources) -> None:
    """Raise Refused where a loaded witness is of another file than the judged one, or of what that file held before."""
    for name, module in _loaded(verdict).items():
        judged, file = sources[name], getattr(module, "__file__", None)
        if judged is None or not same_file(str(judged.path), file):
            raise Refused(CONFLICT, f"{name} was loaded from {file}, not from {judged and judged.path}")
        if reason := loaded_code.may_differ(module, judged.path, sources.root):
            code_paths = [code_path for code_path in verdict.present if code_path.module == name]
            if any(loaded_code.holds_other_code(code_path, module, sources) for code_path in code_paths):
                raise Refused(CONFLICT, reason)


def check_in_place(fix: Judgeable, verdict: judge.Verdict, sources: source_files.Sources) -> None:
    """Raise Refused where somebody has replaced a witness in memory: where it is defined, or where it is imported. Targets are
    looked at where they get their wrappers."""
    modules = _loaded(verdict)
    targets = {code_path for target in fix.whole().targets for code_path in target.code_paths}
    for code_path in sorted(verdict.present - targets):
        if code_path.module in modules:
            _refuse(code_path, _foreign(code_path, modules[code_path.module], sources))
    for code_path, module in _imported(verdict.present, modules):
        _refuse(code_path, _foreign_import(code_path, module, sources))


def check_globals(verdict: judge.Verdict, sources: source_files.Sources) -> None:
    """Raise Refused where a global name that a witness reads holds something else than its file imports. Looked at once, at
    arming: what comes later under such a name, as a profiler's, is no other code than the engine's."""
    for name, module in _loaded(verdict).items():
        if (source := sources[name]) is None:
            continue
        at = [code_path for code_path in verdict.present if code_path.module == name]
        read = global_names.read_by(function for code_path in at for function in _functions(code_path, module))
        if found := global_names.foreign(read, module, source):
            raise Refused(CONFLICT, f"{name}:{found[0]}, which the judged code reads, was replaced by {origin(found[1])}")


def _functions(code_path: CodePath, module: ModuleType) -> Iterator[FunctionType]:
    """What is defined at `code_path`, in a class or module its members, too."""
    value: Any = module
    for name in filter(None, code_path.qualname.split(".")):
        value = _members(value).get(name, _NONE)
    for held in _members(value).values() if issubclass(type(value), (type, ModuleType)) else (value,):
        inside = (held,) if type(held) is FunctionType and not WrappedTarget.of(held) else _inside(held)
        yield from (function for function in inside if function.__module__ == code_path.module)


def _loaded(verdict: judge.Verdict) -> dict[str, ModuleType]:
    return {name: module for name in sorted(verdict.modules) if (module := module_lookup.module(name)) is not None}


def _refuse(code_path: CodePath, found: Any) -> None:
    if found is not _NONE:
        raise Refused(CONFLICT, f"{code_path}, on which the verdict depends, was replaced by {origin(found)}")


def _foreign(code_path: CodePath, module: ModuleType, sources: source_files.Sources) -> Any:
    """What stands at `code_path` and did not come from the judged file; _NONE where it did, or nothing can be told."""
    value: Any = module
    for name in filter(None, code_path.qualname.split(".")):
        value = _members(value).get(name, _NONE)
    if value is _NONE or issubclass(type(value), ModuleType):  # `isinstance` believes a wrapper
        return _NONE if value is _NONE else _foreign_member(code_path, value, sources)
    if issubclass(type(value), type) and CodePath(value.__module__, value.__qualname__) == code_path:
        return _foreign_member(code_path, value, sources)
    if _says_so(_bare(value), code_path, sources):
        return _NONE
    return _judged_by_source(code_path, value, module, sources)


def _foreign_member(code_path: CodePath, holder: Any, sources: source_files.Sources) -> Any:
    """The first foreign function among what a class or module defines."""
    for name, value in _members(holder).items():
        inside = CodePath(code_path.module, f"{code_path.qualname}.{name}".lstrip("."))
        function = _bare(value)
        plain = type(function) is FunctionType
        if _is_generated(name, function) or _says_so(function, inside, sources) if plain else not _poses_as_one(function):
            continue
        if isinstance(holder, ModuleType) and function.__module__ != code_path.module:
            continue  # what a module imports is another's
        if (found := _judged_by_source(inside, value, holder, sources)) is not _NONE:
            return found
    return _NONE


def _judged_by_source(code_path: CodePath, value: Any, holder: Any, sources: source_files.Sources) -> Any:
    """The same, for what does not look like a function of the file: it may be decorated, imported, or defined in two ways."""
    if any(_is_decorated(inside, code_path, sources) for inside in _inside(value)):
        return _NONE
    node = _definition(code_path, sources)
    if isinstance(node, ast.ImportFrom):
        return _foreign_import(code_path, holder, sources)
    if isinstance(node, ast.ClassDef):
        return _NONE if node.decorator_list and not issubclass(type(value), type) else value
    if not isinstance(node, _FUNCTIONS):
        return _NONE
    if all(isinstance(one, ast.Name) and one.id in _TRANSPARENT for one in node.decorator_list):
        return value
    functions = list(_inside(value))
    return value if functions and not any(_says_so(one, code_path, sources) for one in functions) else _NONE


def _definition(code_path: CodePath, sources: source_files.Sources) -> ast.stmt | None:
    """The one definition at `code_path`; None where there is none, or more than one."""
    data = sources(code_path.module)
    found = list(definitions(judge.parsed(data), code_path.qualname)) if data is not None and code_path.qualname else []
    return found[0][-1] if len(found) == 1 else None


def _imported(present: frozenset[CodePath], modules: dict[str, ModuleType]) -> Iterator[tuple[CodePath, ModuleType]]:
    """Names of witnesses that other modules of the fix hold, too, and that are another object there."""
    homes: dict[str, list[Any]] = {}
    for code_path in present:
        if code_path.module in modules and code_path.qualname and "." not in code_path.qualname:
            homes.setdefault(code_path.qualname, []).append(_own(vars(modules[code_path.module]).get(code_path.qualname)))
    for name, module in modules.items():
        for qualname, values in homes.items():
            value = _own(vars(module).get(qualname))
            if value is not None and all(value is not known for known in values):
                yield CodePath(name, qualname), module


def _foreign_import(code_path: CodePath, module: Any, sources: source_files.Sources) -> Any:
    """What stands under a name that the module imports, if it is not what the name says where it is imported from."""
    node = _definition(code_path, sources)
    if not isinstance(node, ast.ImportFrom):
        return _NONE
    there = resolve_name("." * node.level + (node.module or ""), module.__package__ or "")
    names = [alias.name for alias in node.names if (alias.asname or alias.name) == code_path.qualname]
    home = module_lookup.module(there)
    if home is None or len(names) != 1 or names[0] not in vars(home):
        return _NONE
    value = vars(module)[code_path.qualname]
    return _NONE if _own(value) is _own(vars(home)[names[0]]) else value


def _says_so(function: Any, code_path: CodePath, sources: source_files.Sources) -> bool:
    """Whether a function's code says that it is the definition at `code_path` in the judged file."""
    source = sources[code_path.module]
    return type(function) is FunctionType and source is not None and says_so(source, code_path, function)


def _is_decorated(function: FunctionType, code_path: CodePath, sources: source_files.Sources) -> bool:
    """Whether it is the definition at `code_path`, and that has a decorator: told by one line, since a parse costs 20 ms."""
    if not _says_so(function, code_path, sources):
        return False
    lines = sources[code_path.module].lines  # type: ignore[union-attr]  # it says that it is of that file
    first = function.__code__.co_firstlineno  # that of the first decorator
    decorator = lines[first - 1].strip() if first <= len(lines) else b""
    return decorator.startswith(b"@") and decorator[1:].decode("utf-8", "replace") not in _TRANSPARENT


def _poses_as_one(value: Any) -> bool:
    """Whether what is no function says that it is one, or the descriptor of one, as a wrapper of wrapt's does."""
    try:
        return isinstance(value, (FunctionType, *_DESCRIPTORS))
    except Exception:  # of somebody's `__class__`
        return False


def _bare(value: Any) -> Any:
    """What a static or class method, or our wrapper, holds; anything else as it is."""
    for _ in range(_DEEP):
        value = _own(value)
        if not issubclass(type(value), _DESCRIPTORS):
            break
        value = value.__func__
    return value


def _is_generated(name: str, function: FunctionType) -> bool:
    """As a dataclass's `__init__`, which comes from no file."""
    return name.startswith("__") and function.__code__.co_filename.startswith("<")


def _inside(value: Any) -> Iterator[FunctionType]:
    """The functions in a value: itself, what a static method, our wrapper or a decorator holds."""
    for _ in range(_DEEP):
        value = _own(value)
        if type(value) is FunctionType:
            yield value
        value = next((held for name in _HOLDS if (held := _held(value, name)) is not None), None)
        if value is None:
            return


def _held(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # of somebody's `__getattr__`
        return None


def _own(value: Any) -> Any:
    """The engine's function behind our wrapper; anything else as it is."""
    wrapper = WrappedTarget.of(value)
    return wrapper.wrapped if wrapper else value


def _members(holder: Any) -> dict[str, Any]:
    # `isinstance` believes a wrapper, and wrapt 1's has no `__dict__` to look into
    return dict(vars(holder)) if issubclass(type(holder), (type, ModuleType)) else {}
