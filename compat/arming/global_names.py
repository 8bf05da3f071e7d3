"""Whether the global names that witnesses read hold in memory what the imports of their file say.

A digest has the import; a patcher may have put another function, class or module under its name since. Functions tell by their
code which names they read, and a line by line look at the file which of them are imported: a parse costs 20 ms. What the engine
binds in another way, too, is not told.
"""

from __future__ import annotations

import ast
import re
import weakref
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import resolve_name
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..gate import judge, module_lookup, source_files
from .wrapper import WrappedTarget

_NONE = object()
_IMPORT = re.compile(
    rb"import[ \t]+(\((?:[^)#]|#[^\n]*\n)*\)|[^\n;]+)"
)  # begins with letters: any other takes twenty times as long
_COMMENT = re.compile(rb"#[^\n]*")
#: What is told: by identity, or by what it says of itself
_TOLD = (FunctionType, ModuleType, type)
#: Per name the modules and names that it may be imported from; None: the module itself
Imports = dict[str, list[tuple[str, "str | None"]]]
_found: dict[str, tuple[tuple[int, ...], Imports]] = {}
#: What was found to agree, by module and name: many fixes have witnesses in one module. A target that is held cannot be wrapped
#: late, so nothing is held here
_agreed: dict[tuple[str, str], weakref.ref[Any]] = {}


def read_by(functions: Iterator[FunctionType]) -> set[str]:
    """Global names, and attributes, that the functions read."""
    names: set[str] = set()
    codes = [function.__code__ for function in functions]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += (inner for inner in code.co_consts if isinstance(inner, CodeType))
    return names


def foreign(names: set[str], module: ModuleType, source: source_files.Source) -> tuple[str, Any] | None:
    """(name, what it holds) of the first of `names` that `module` imports, and that is something else; None where none is."""
    imports, held = _imports(source), vars(module)
    for name in names & imports.keys() & held.keys():
        if (agreed := _agreed.get((module.__name__, name))) and agreed() is held[name]:
            continue
        homes = [(_absolute(home, module), given) for home, given in imports[name]]
        if not any(_agrees(held[name], home, given) for home, given in homes) and not _is_bound_otherwise(name, source):
            written = _by_syntax(name, source)
            if written is not None and not any(_agrees(held[name], _absolute(home, module), given) for home, given in written):
                return name, held[name]
        with suppress(TypeError):  # of what has no weak references
            _agreed[module.__name__, name] = weakref.ref(held[name])
    return None


def _agrees(value: Any, home: str, given: str | None) -> bool:
    """Whether `value` may be what an import of `given` from `home` gives. Where nothing can be told, it may: a module of a
    class of its own answers as it likes."""
    there = module_lookup.module(home)
    if there is None or (given is None and _named(value) == (home, None)):
        return True
    if given is not None and type(there) is not ModuleType:
        return True
    if given is None:
        return value is there
    if module_lookup.module(f"{home}.{given}") is value or _named(value) == (home, given):
        return True
    held = vars(there).get(given, _NONE)
    if held is _NONE:
        lazily = vars(there).get("__getattr__")
        return type(lazily) is not FunctionType or _is_of_one_kind(value, lazily, given)
    return _own(held) is _own(value) or not isinstance(held, _TOLD)


def _own(value: Any) -> Any:
    """The engine's function behind our wrapper; anything else as it is."""
    return wrapper.wrapped if (wrapper := WrappedTarget.of(value)) else value


def _is_of_one_kind(value: Any, lazily: FunctionType, given: str) -> bool:
    """A module makes `given` when it is asked, and has made it for this import: the same again, or one of the same type."""
    try:
        made = lazily(given)
    except Exception:
        return True
    return made is value or type(made) is type(value)


def _named(value: Any) -> tuple[str, str | None] | None:
    """What a function, class or module says of itself; None where it may have taken that over, as a wrapper does."""
    value = _own(value)
    kind = type(value)  # `isinstance` believes a wrapper
    if issubclass(kind, ModuleType):
        return value.__name__, None
    if not issubclass(kind, _TOLD) or "__wrapped__" in vars(value):
        return None
    return value.__module__, value.__qualname__


def _imports(source: source_files.Source) -> Imports:
    path = str(source.path)
    if path not in _found or _found[path][0] != source.stamp:
        _found[path] = source.stamp, _read(source.data)
    return _found[path][1]


def _read(data: bytes) -> Imports:
    found: Imports = {}
    for match in _IMPORT.finditer(data):
        before = data[data.rfind(b"\n", 0, match.start()) + 1 : match.start()].split()
        if before and (len(before) != 2 or before[0] != b"from"):
            continue
        for part in _COMMENT.sub(b"", match[1]).strip(b"() \t\r\n").decode("utf-8", "replace").split(","):
            words = part.split()
            if len(words) == 1 or (len(words) == 3 and words[1] == "as"):
                given, name = words[0], words[-1]
                if before:
                    found.setdefault(name, []).append((before[1].decode("utf-8", "replace"), given))
                else:
                    home = given if len(words) == 3 else given.partition(".")[0]  # `import a.b` binds `a`
                    found.setdefault(name if len(words) == 3 else home, []).append((home, None))
    return found


def _by_syntax(name: str, source: source_files.Source) -> list[tuple[str, str | None]] | None:
    """What may be imported under `name`, by a parse: a line by line look misses some forms. None where the file binds it
    otherwise, too."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(judge.parsed(source.data)):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return None
        if isinstance(node, ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                return None
            home = "." * node.level + (node.module or "")
            found += [(home, alias.name) for alias in node.names if (alias.asname or alias.name) == name]
        elif isinstance(node, ast.Import):
            given = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) == name]
            found += [(alias.name if alias.asname else name, None) for alias in given]
    return found


def _absolute(home: str, module: ModuleType) -> str:
    try:
        return resolve_name(home, module.__package__ or "")
    except ImportError:  # beyond the top: no import of this module
        return home


def _is_bound_otherwise(name: str, source: source_files.Source) -> bool:
    word = re.escape(name).encode()
    other = rb"^[^#\n]*?(?:\b(?:def|class|global|as)[ \t]+%b\b(?![ \t]*,)|(?<![.\w])%b\b[^=\n(]*=[^=])" % (word, word)
    return re.search(other, _IMPORT.sub(b"", source.data), re.MULTILINE) is not None
