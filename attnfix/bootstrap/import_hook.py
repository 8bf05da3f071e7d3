"""The import hook: run by the `.pth` file at every interpreter start, so it imports `sys` alone and is small.

Puts one finder on `sys.meta_path` that answers only the exact names in `target_modules`, finds them with the other finders, and
calls `process.module_loaded` when the body of one has run. Where another finder comes to stand before it, and an engine is
there or asked for, it takes the first place again; what was loaded past it is caught up with. Everything else is imported at
that moment, not here, and `target_modules` where one of PACKAGES is imported, which most programs never do. A program without
an engine gets no more than that, keeps its finders in its own order, and is never ended.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType
    from typing import Any
else:
    Loader = object

ENGINES = ("sglang", "vllm")
# How the names in `target_modules` begin
PACKAGES = ("prometheus_client", *ENGINES)
# Packages that attnfix imports itself while it catches up, beside the standard library
_OWN = ("attnfix", "packaging", "wrapt")
# Targets whose body ran, or began to, without us: another finder loaded them, or a private copy was made
_passed_by: "set[str]" = set()
# Targets that are dealt with: they came through us, or were caught up with
_dealt_with: "set[str]" = set()
# The words of `compat.switches`, which may be what does not work
ON, OFF = ("1", "on", "yes", "true"), ("0", "off", "no", "false")


class _Loader(Loader):
    """Stands before the real loader of one module; takes itself off again before the body runs."""

    def __init__(self, loader: "Loader") -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> "Any":
        if name == "loader":  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self.loader, name)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        return self.loader.create_module(spec)

    def exec_module(self, module: "ModuleType") -> None:
        name = ""
        try:
            name = module.__name__  # of a lazy loader's module, which would be loaded by a later look at it
            assert module.__spec__ is not None
            module.__spec__.loader = module.__loader__ = self.loader
        except Exception as error:
            name = name or module.__name__
            broken(name, error)
        self.loader.exec_module(module)
        try:
            _executed(name, module)
        except Exception as error:  # an engine turns an exception here into another backend, silently
            broken(name, error)


def _executed(name: str, module: "ModuleType") -> None:
    """The body of `module` has run. A private copy, which is not the module of that name, is no concern of ours until it is
    made that. A module that makes a metrics page is none before an engine is there: the activation catches up with it."""
    if _is_target(name) and _is_engine(name):
        install()  # somebody may have taken our finder out meanwhile
        if sys.modules.get(name) is module or _is_half_done(module):
            _deal_with({name})
            from .process import module_loaded

            module_loaded(name)
        else:
            _passed_by.add(name)
    if there := _to_catch_up_with(name):
        _catch_up(there)


def _catch_up(there: "set[str]") -> None:
    try:
        from .process import catch_up

        catch_up()
    except Exception:  # said once; an interrupt leaves it to the next import
        _deal_with(there)
        raise
    _deal_with(there)


def _deal_with(names: "set[str]") -> None:
    _dealt_with.update(names)
    _passed_by.difference_update(names)


def _to_catch_up_with(loading: str) -> "set[str]":
    """The targets of `_passed_by` that are there while `loading` is imported. None in the midst of catching up, nor while a
    module that it may need is half-done."""
    there = {name for name in _passed_by if name in sys.modules and not _is_half_done(sys.modules[name])}
    if not there or any(_callers(_catch_up)):
        return set()
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        needed = package in sys.stdlib_module_names or package in _OWN
        if needed and name != loading and module is not None and _is_half_done(module):  # None: it may not be imported
            return set()
    return there


def _is_half_done(module: "ModuleType | None") -> bool:
    return module is None or getattr(getattr(module, "__spec__", None), "_initializing", False)


def _callers(function: "Any") -> "Iterator[FrameType]":
    """Calls of `function` in this thread that have not returned. A set of what is under way would keep, after an interrupt,
    what is not."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code is function.__code__:
            yield frame
        frame = frame.f_back


def broken(where: str, error: Exception) -> None:
    """attnfix itself does not work here: said at once, and a process that requires a fix ends. One without an engine has no
    use for attnfix: there it is nothing."""
    import os

    if not _is_engine(where):
        return
    try:
        if sys.stderr is not None:
            said = f"attnfix: not active in {where}: {type(error).__name__}: {error}"
            said = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in said)  # as `compat.untrusted.line`
            print(said, file=sys.stderr, flush=True)
    except Exception:  # closed, or on a full disk  # nosec B110
        pass
    values = {name: value.strip().lower() for name, value in os.environ.items() if name.startswith("ATTNFIX")}
    required = ("ATTNFIX_STRICT", "ATTNFIX_SGLANG_", "ATTNFIX_VLLM_")
    if values.get("ATTNFIX") not in OFF and any(name.startswith(required) and values[name] in ON for name in values):
        os._exit(78)


class _Finder:
    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        theirs = None
        try:
            # Without an engine the first place is the program's, which may take out whatever finder is first
            if not any(map(_is_ours, sys.meta_path[:1])) and _is_engine(name):
                self._first_again()
            # What was loaded without us is told by the next module that is: here Python holds its import lock, and a thread
            # that is arming may wait for it
            carries = _passed_by and not name.startswith(_OWN) and _to_catch_up_with(name)
            if (carries or _is_target(name)) and not self._asks_for(name):
                spec, theirs = self._ask_the_others(name, path, target)
                if theirs is None:
                    return spec
        except Exception as error:
            broken(name, error)
        if theirs is not None:
            try:
                raise theirs
            finally:
                del theirs  # its traceback holds this frame, and those of who imports: a circle would keep what they hold
        return None

    def _first_again(self) -> None:
        """A finder that stands before us may have loaded targets without asking us, and may again."""
        if self in sys.meta_path:
            sys.meta_path[:] = [self, *(finder for finder in sys.meta_path if finder is not self)]
            if _is_engine():
                from .target_modules import MODULES

                _passed_by.update((MODULES & sys.modules.keys()) - _dealt_with)

    def _asks_for(self, name: str) -> bool:
        """Whether another finder asks every finder, as ours does: it must not be asked in a circle."""
        return any(caller.f_locals["name"] == name for caller in _callers(_Finder._ask_the_others))

    def _ask_the_others(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None"
    ) -> "tuple[ModuleSpec | None, Exception | None]":
        """(spec, or None where nobody has one; what another finder raised, or None)"""
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                try:
                    spec = finder.find_spec(name, path, target)
                except Exception as error:
                    return None, error
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader)
                    return spec, None
        return None, None


def _is_engine(where: str = "") -> bool:
    """Whether an engine is imported here, or `where` is a module of one."""
    return where.partition(".")[0] in ENGINES or any(sys.modules.get(engine) is not None for engine in ENGINES)


def _is_target(name: str) -> bool:
    if not name.startswith(PACKAGES):
        return False
    from .target_modules import MODULES

    return name in MODULES


def install() -> None:
    """Put the finder first on `sys.meta_path`. Idempotent."""
    if not any(map(_is_ours, sys.meta_path)):
        sys.meta_path.insert(0, _Finder())


def _is_ours(finder: object) -> bool:
    """Of a second copy of attnfix, too: two would take the first place from each other at every import."""
    return type(finder).__name__ == "_Finder" and type(finder).__module__ == __name__


install()
