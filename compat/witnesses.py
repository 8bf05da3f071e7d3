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

from . import gate, in_memory, loaded
from .digest import definitions
from .fix import Fix, Place
from .seats import Refused, origin, same_file, says_so
from .states import CONFLICT
from .wrapping import TargetWrapper

_NONE = object()
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Decorators that leave the function as it is, behind `__func__`
_TRANSPARENT = frozenset({"staticmethod", "classmethod"})
#: Where decorators keep what they were put around: functools, Triton, property, cached_property
_HOLDS = ("__wrapped__", "__func__", "fn", "fget", "func")


def check_files(verdict: gate.Verdict, sources: gate.Sources) -> None:
    """Raise Refused where a loaded witness is of another file than the judged one, or of what that file held before."""
    for name, module in _loaded(verdict).items():
        judged, file = sources[name], getattr(module, "__file__", None)
        if judged is None or not same_file(str(judged.path), file):
            raise Refused(CONFLICT, f"{name} was loaded from {file}, not from {judged and judged.path}")
        if reason := in_memory.may_differ(module, judged.path, sources.root):
            places = [place for place in verdict.present if place.module == name]
            if any(in_memory.holds_other_code(place, module, sources) for place in places):
                raise Refused(CONFLICT, reason)


def check_in_place(fix: Fix, verdict: gate.Verdict, sources: gate.Sources) -> None:
    """Raise Refused where somebody has replaced a witness in memory: where it is defined, or where it is imported. Targets are
    looked at where they get their wrappers."""
    modules = _loaded(verdict)
    targets = {place for target in fix.targets for place in target.places}
    for place in sorted(verdict.present - targets):
        if place.module in modules:
            _refuse(place, _foreign(place, modules[place.module], sources))
    for place, module in _imported(verdict.present, modules):
        _refuse(place, _foreign_import(place, module, sources))


def _loaded(verdict: gate.Verdict) -> dict[str, ModuleType]:
    return {name: module for name in sorted(verdict.modules) if (module := loaded.module(name)) is not None}


def _refuse(place: Place, found: Any) -> None:
    if found is not _NONE:
        raise Refused(CONFLICT, f"{place}, on which the verdict depends, was replaced by {origin(found)}")


def _foreign(place: Place, module: ModuleType, sources: gate.Sources) -> Any:
    """What stands at `place` and did not come from the judged file; _NONE where it did, or nothing can be told."""
    value: Any = module
    for name in filter(None, place.qualname.split(".")):
        value = _members(value).get(name, _NONE)
    if value is _NONE or isinstance(value, ModuleType):
        return _NONE if value is _NONE else _foreign_member(place, value, sources)
    if issubclass(type(value), type) and Place(value.__module__, value.__qualname__) == place:
        return _foreign_member(place, value, sources)
    if any(_says_so(inside, place, sources) for inside in _inside(value, deep=False)):
        return _NONE
    return _judged_by_source(place, value, module, sources)


def _foreign_member(place: Place, holder: Any, sources: gate.Sources) -> Any:
    """The first foreign function among what a class or module defines."""
    for name, value in _members(holder).items():
        inside = Place(place.module, f"{place.qualname}.{name}".lstrip("."))
        function = next(_inside(value, deep=False), None)
        if type(function) is not FunctionType or _is_generated(name, function) or _says_so(function, inside, sources):
            continue
        if isinstance(holder, ModuleType) and function.__module__ != place.module:
            continue  # what a module imports is another's
        if (found := _judged_by_source(inside, value, holder, sources)) is not _NONE:
            return found
    return _NONE


def _judged_by_source(place: Place, value: Any, holder: Any, sources: gate.Sources) -> Any:
    """The same, for what does not look like a function of the file: it may be decorated, imported, or defined in two ways."""
    if any(_is_decorated(inside, place, sources) for inside in _inside(value, deep=True)):
        return _NONE
    node = _definition(place, sources)
    if isinstance(node, ast.ImportFrom):
        return _foreign_import(place, holder, sources)
    if isinstance(node, ast.ClassDef):
        return _NONE if node.decorator_list and not issubclass(type(value), type) else value
    if not isinstance(node, _FUNCTIONS):
        return _NONE
    if all(isinstance(one, ast.Name) and one.id in _TRANSPARENT for one in node.decorator_list):
        return value
    functions = list(_inside(value, deep=True))
    return value if functions and not any(_says_so(one, place, sources) for one in functions) else _NONE


def _definition(place: Place, sources: gate.Sources) -> ast.stmt | None:
    """The one definition at `place`; None where there is none, or more than one."""
    data = sources(place.module)
    found = list(definitions(gate.parsed(data), place.qualname)) if data is not None and place.qualname else []
    return found[0][-1] if len(found) == 1 else None


def _imported(present: frozenset[Place], modules: dict[str, ModuleType]) -> Iterator[tuple[Place, ModuleType]]:
    """Names of witnesses that other modules of the fix hold, too, and that are another object there."""
    homes: dict[str, list[Any]] = {}
    for place in present:
        if place.module in modules and place.qualname and "." not in place.qualname:
            homes.setdefault(place.qualname, []).append(_own(vars(modules[place.module]).get(place.qualname)))
    for name, module in modules.items():
        for qualname, values in homes.items():
            value = _own(vars(module).get(qualname))
            if value is not None and all(value is not known for known in values):
                yield Place(name, qualname), module


def _foreign_import(place: Place, module: Any, sources: gate.Sources) -> Any:
    """What stands under a name that the module imports, if it is not what the name says where it is imported from."""
    node = _definition(place, sources)
    if not isinstance(node, ast.ImportFrom):
        return _NONE
    there = resolve_name("." * node.level + (node.module or ""), module.__package__ or "")
    names = [alias.name for alias in node.names if (alias.asname or alias.name) == place.qualname]
    home = loaded.module(there)
    if home is None or len(names) != 1 or names[0] not in vars(home):
        return _NONE
    value = vars(module)[place.qualname]
    return _NONE if _own(value) is _own(vars(home)[names[0]]) else value


def _says_so(function: Any, place: Place, sources: gate.Sources) -> bool:
    """Whether a function's code says that it is the definition at `place` in the judged file."""
    source = sources[place.module]
    return type(function) is FunctionType and source is not None and says_so(source, place, function)


def _is_decorated(function: FunctionType, place: Place, sources: gate.Sources) -> bool:
    """Whether it is the definition at `place`, and that has a decorator: told by one line, since a parse costs 20 ms."""
    if not _says_so(function, place, sources):
        return False
    lines = sources[place.module].lines  # type: ignore[union-attr]  # it says that it is of that file
    first = function.__code__.co_firstlineno  # that of the first decorator
    return first <= len(lines) and lines[first - 1].lstrip().startswith(b"@")


def _is_generated(name: str, function: FunctionType) -> bool:
    """As a dataclass's `__init__`, which comes from no file."""
    return name.startswith("__") and function.__code__.co_filename.startswith("<")


def _inside(value: Any, deep: bool) -> Iterator[FunctionType]:
    """The functions in a value: itself, what a staticmethod or our wrapper holds; `deep`: what a decorator holds, too."""
    for _ in range(8):  # a chain may be a circle
        value = _own(value)
        if type(value) is FunctionType:
            yield value
        holds = _HOLDS if deep else ("__func__",) if isinstance(value, (staticmethod, classmethod)) else ()
        value = next((held for name in holds if (held := _held(value, name)) is not None), None)
        if value is None:
            return


def _held(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # of somebody's `__getattr__`
        return None


def _own(value: Any) -> Any:
    """The engine's function behind our wrapper; anything else as it is."""
    wrapper = TargetWrapper.of(value)
    return wrapper.wrapped if wrapper else value


def _members(holder: Any) -> dict[str, Any]:
    # `isinstance` believes a wrapper, and wrapt 1's has no `__dict__` to look into
    return dict(vars(holder)) if issubclass(type(holder), (type, ModuleType)) else {}
