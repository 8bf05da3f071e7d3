"""The import hook: run by the `.pth` file at every interpreter start, so it imports `sys` alone and is small.

Puts one finder on `sys.meta_path` that answers only the exact names in `target_modules`, finds them with the other finders, and
calls `process.module_loaded` when the body of one has run. Where another finder comes to stand before it, it takes the first
place again, and what was loaded past it is caught up with. Everything else is imported at that moment, not here, and
`target_modules` where one of PACKAGES is imported, which most programs never do.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any
else:
    Loader = object

# How the names in `target_modules` begin
PACKAGES = ("prometheus_client", "sglang", "vllm")
# What attnfix imports itself while it catches up
_OWN = ("attnfix", "packaging", "wrapt")
# Names being looked up: another finder that asks every finder, as ours does, must not ask in a circle. One thread at a time
# looks up: Python holds its import lock meanwhile.
_busy: "set[str]" = set()
# Targets whose body ran, or began to, without us: another finder loaded them, or a private copy was made
_passed_by: "set[str]" = set()
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
        try:
            assert module.__spec__ is not None
            module.__spec__.loader = module.__loader__ = self.loader
        except Exception as error:
            broken(module.__name__, error)
        self.loader.exec_module(module)
        try:
            _executed(module)
        except Exception as error:  # an engine turns an exception here into another backend, silently
            broken(module.__name__, error)


def _executed(module: "ModuleType") -> None:
    """The body of `module` has run. A private copy, which is not the module of that name, is no concern of ours until it is
    made that."""
    name = module.__name__
    if _is_target(name):
        if sys.modules.get(name) is module or getattr(module.__spec__, "_initializing", False):
            from .process import module_loaded

            module_loaded(name)
        else:
            _passed_by.add(name)
    if there := _there():
        _passed_by.difference_update(there)
        from .process import catch_up

        catch_up()


def _there() -> "set[str]":
    """Those of `_passed_by` that are imported by now."""
    found = {name: sys.modules.get(name) for name in _passed_by}
    return {
        name
        for name, module in found.items()
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)
    }


def broken(where: str, error: Exception) -> None:
    """attnfix itself does not work here: said at once, and a process that requires a fix ends."""
    import os

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
            if not _is_ours(sys.meta_path[0]):
                self._first_again()
            # What was loaded without us is told by the next module that is: here Python holds its import lock, and a thread
            # that is arming may wait for it
            carries = _passed_by and not name.startswith(_OWN) and _there()
            if (carries or _is_target(name)) and name not in _busy:
                spec, theirs = self._ask_the_others(name, path, target)
                if theirs is None:
                    return spec
        except Exception as error:
            broken(name, error)
        if theirs is not None:
            raise theirs
        return None

    def _first_again(self) -> None:
        """A finder that stands before us may have loaded targets without asking us, and may again."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)
            if any(package in sys.modules for package in PACKAGES):
                from .target_modules import MODULES

                _passed_by.update(MODULES & sys.modules.keys())

    def _ask_the_others(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None"
    ) -> "tuple[ModuleSpec | None, Exception | None]":
        """(spec, or None where nobody has one; what another finder raised, or None)"""
        _busy.add(name)
        try:
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
        finally:
            _busy.discard(name)


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
