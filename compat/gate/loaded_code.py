"""Whether what runs is what was judged. The gate reads files, and files may be replaced under a live process.

A function's code object in memory is compared with the one that this Python makes of its definition in the file.
"""

from __future__ import annotations

import ast
import copy
import math
import os
import stat
import time
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from itertools import takewhile
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..fix import CodePath, Judgeable
from ..status import process_record
from . import judge, source_files
from .digest import definitions, statements

_STEP_S = 10  # by which a clock may have been set meanwhile
CHANGED = "the engine's files were replaced under this process: restart it"

#: Of each witness file what changes when it is replaced, None where there is none
Stamp = tuple[tuple[int, ...] | None, ...]


def stamp(fix: Judgeable, sources: source_files.Sources) -> Stamp:
    """Tells without reading them whether the witness files of `fix` are the same as before."""
    return tuple(source.stamp if source else None for source in map(sources.__getitem__, fix.modules))


def may_differ(module: ModuleType | None, path: Path, root: Path) -> str | None:
    """Why what `module` holds need not be what the file at `path` defines; None where it must be.

    The file may be younger, the module may come from a loader that compiles something else, as typeguard's, or from compiled
    code that Python takes without a look at the file.
    """
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if type(loader) is not SourceFileLoader:
        by = f"{type(loader).__module__}.{type(loader).__qualname__}"
        return f"what runs is not what {path} defines: {by} loaded it"
    if cached := _unchecked(module):
        return f"what runs is not what {path} defines: Python took {cached} without comparing"
    return CHANGED if younger_than_process(path, root) else None


def _unchecked(module: ModuleType | None) -> str | None:
    """The file of compiled code of `module`, if its flags say that Python never compares it with the source (PEP 552)."""
    cached = getattr(getattr(module, "__spec__", None), "cached", None)
    try:
        with open(cached or "", "rb") as file:
            flags = int.from_bytes(file.read(8)[4:], "little")
    except OSError:
        return None
    return cached if flags & 0b11 == 0b01 else None  # by hash, and not to be checked


def younger_than_process(path: Path, root: Path) -> bool:
    """Whether a file of the package at `root` may have been put there after this process had started: it, a folder that holds
    it, or a link on the way to it was made, moved or touched since."""
    # No `Path` from here on: comparing them takes five times as long as the system calls
    file, top = os.fspath(path), os.fspath(root)
    inside = (file, *takewhile(lambda folder: len(folder) >= len(top), _above(file)))
    links = (folder for folder in _above(top) if os.path.islink(folder))
    since = _BEGAN - _STEP_S
    return any(_touched(code_path) > since for code_path in (*inside, *links))


def _above(path: str) -> Iterator[str]:
    while (folder := os.path.dirname(path)) != path:
        yield folder
        path = folder


def _touched(path: str) -> float:
    """When it, or what it is a link to, was last made, moved or touched."""
    found = os.lstat(path)
    return max(found.st_ctime, os.stat(path).st_ctime) if stat.S_ISLNK(found.st_mode) else found.st_ctime


def _began() -> float:
    """When this process started, seconds since the epoch. Where the system does not tell, every file counts as younger."""
    try:
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return booted + process_record.started(os.getpid()) / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return -math.inf


#: What has members of its own
_HOLDERS = (type, ModuleType)
_BEGAN = _began()  # kept by a forked child, which has modules of its parent


def is_defined(function: FunctionType, code_path: CodePath, read: source_files.READ) -> bool:
    """Whether `function` has the code of a definition at `code_path`, to the line, with the defaults that stand there."""
    data = read(code_path.module)
    if data is None:
        return False
    tree = judge.parsed(data)
    return any(
        _has_defaults(function, definition) and any(function.__code__ == code for code in _codes(tree, (*classes, definition)))
        for *classes, definition in definitions(tree, code_path.qualname)
    )


def _has_defaults(function: FunctionType, definition: ast.stmt) -> bool:
    """Whether there are as many as `definition` has, and equal ones where a literal is written."""
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    written = [*definition.args.defaults, *filter(None, definition.args.kw_defaults)]
    return len(written) == len(values) and all(map(_may_be, written, values))


def _may_be(written: ast.expr, value: Any) -> bool:
    try:
        return repr(ast.literal_eval(written)) == repr(value)  # tells 1 from True and 0.0 from -0.0
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return True  # no literal


def holds_other_code(code_path: CodePath, module: ModuleType, read: source_files.READ) -> bool:
    """Whether a plain function at `code_path`, or in the class or module of that name, has other code than the file.

    What is no plain function (a decorated one, one that somebody has wrapped) and values are not compared.
    """
    holder: Any = module
    for name in filter(None, code_path.qualname.split(".")):
        holder = vars(holder).get(name)
        if not issubclass(type(holder), _HOLDERS):
            break
    if type(holder) is FunctionType:
        return _is_own(holder, code_path) and not is_defined(holder, code_path, read)
    if not issubclass(type(holder), _HOLDERS):  # `isinstance` believes a wrapper, and wrapt 1's has no `__dict__` to look into
        return False
    prefix = f"{code_path.qualname}." if code_path.qualname else ""
    members = {CodePath(code_path.module, prefix + name): member for name, member in vars(holder).items()}
    functions = {there: member for there, member in members.items() if type(member) is FunctionType and _is_own(member, there)}
    return any(not is_defined(function, there, read) for there, function in functions.items())


def _is_own(function: FunctionType, code_path: CodePath) -> bool:
    """Whether it was defined at `code_path`, and not put there by somebody else, around what was."""
    if "__wrapped__" in vars(function):  # takes over the name
        return False
    if function.__code__.co_filename.startswith("<"):  # as a dataclass's `__init__`: before Python 3.11 it has its place's name
        return False
    called = getattr(function.__code__, "co_qualname", function.__qualname__)  # before Python 3.11 the code does not know
    return function.__module__ == code_path.module and called == code_path.qualname


def _codes(tree: ast.Module, chain: tuple[ast.stmt, ...]) -> Iterator[CodeType]:
    """The code objects that an import of `tree` makes of a function: the last in `chain`, behind the classes around it."""
    *classes, body = chain
    for outer in reversed(classes):  # names are mangled, and `super` found, by the class around
        around = copy.copy(outer)
        around.body = [body]  # type: ignore[attr-defined]
        body = around
    # Imports of the module: those of `__future__`, and a call of what was imported is compiled in another way
    imports = [found for found in statements(tree) if isinstance(found, (ast.Import, ast.ImportFrom))]
    code = compile(ast.Module([*imports, body], []), "", "exec", dont_inherit=True)
    yield from _named(code, [definition.name for definition in chain])  # type: ignore[attr-defined]


def _named(code: CodeType, names: list[str]) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and inner.co_name == names[0]:
            if len(names) == 1:
                yield inner
            else:
                yield from _named(inner, names[1:])
