"""Lets an engine's Python import on a machine that lacks its compiled and optional packages.

A stub is put in place only of a package that is not installed. While the engine imports, stubs are permissive: names,
decorators and base classes come out of them. From `freeze()` on, using one in any way raises: a stub that quietly did
nothing once turned an engine's own fix into a no-op and made a healthy release look affected.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

#: Compiled or optional packages that some release imports at module level and a CPU machine may lack.
OPTIONAL = {
    "sglang": ("sgl_kernel", "flash_mla", "torchvision", "xgrammar", "gguf", "tvm_ffi"),
    "vllm": (
        "flashinfer", "torchvision", "cbor2", "gguf", "uvloop", "cpuinfo", "openai_harmony", "cachetools", "cloudpickle",
        "prometheus_client", "xgrammar", "llguidance", "blake3", "setproctitle", "numba", "mistral_common", "diskcache",
        "lmformatenforcer",
    ),
}  # fmt: skip

_frozen = False


class StubUsed(RuntimeError):
    """A proof ran into a package that is not installed here."""


def install(engine: str) -> list[str]:
    """Stub what `engine` may import and is not installed; the names that were stubbed."""
    names = [name for name in OPTIONAL[engine] if importlib.util.find_spec(name) is None]
    if names:
        _quieten_transformers()
        sys.meta_path.append(_Finder(names))
    return names


def freeze() -> None:
    """From now on, any use of a stub raises StubUsed."""
    global _frozen
    _frozen = True


def _use(name: str) -> None:
    if _frozen:
        raise StubUsed(f"{name} was used, but the package is not installed here")


class _Anything:
    """An attribute of a stubbed module: called, indexed, or used as a decorator or annotation."""

    _name: str

    def __init__(self, name: str):
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        found: _Anything = self.__dict__.setdefault(name, _Anything(f"{self._name}.{name}"))
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _use(self._name)
        decorated = len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type))
        return args[0] if decorated else _Anything(f"{self._name}()")

    def __getitem__(self, key: object) -> _Anything:
        _use(self._name)
        return self

    def __iter__(self) -> Iterator[Any]:
        _use(self._name)
        return iter(())

    def __bool__(self) -> bool:
        _use(self._name)
        return False

    def __or__(self, other: object) -> _Anything:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)


class _Class(type):
    """Metaclass of stubbed classes: class attributes exist, too."""

    def __getattr__(cls, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(f"{cls.__module__}.{cls.__name__}.{name}")

    def __iter__(cls) -> Iterator[Any]:
        _use(cls.__name__)
        return iter(())

    def __getitem__(cls, key: object) -> _Class:
        return cls


class _Base(metaclass=_Class):
    def __init__(self, *args: object, **kwargs: object):
        _use(type(self).__name__)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.any_schema()


class _Module(types.ModuleType):
    __version__ = "99.0"

    def __getattr__(self, name: str) -> _Class | _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        looks_like_class = name[0].isupper() and not name.isupper()
        value = _Class(name, (_Base,), {"__module__": self.__name__}) if looks_like_class else _Anything(full)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Iterable[str]):
        self.names = frozenset(names)

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> _Module:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _quieten_transformers() -> None:
    """transformers asks by `find_spec` which packages exist: let it ask before the stubs answer.

    And let an engine register a model type that a newer transformers already ships.
    """
    import transformers.utils.import_utils as available
    from transformers.models.auto import auto_factory, configuration_auto

    for name in ("is_torchvision_available", "is_torchaudio_available", "is_vision_available"):
        getattr(available, name, lambda: None)()
    for mapping in (configuration_auto._LazyConfigMapping, auto_factory._LazyAutoMapping):
        mapping.register = _overwriting(mapping.register)  # type: ignore[method-assign]


def _overwriting(register: Callable[..., None]) -> Callable[..., None]:
    def overwrite(self: object, key: object, value: object, exist_ok: bool = False) -> None:
        return register(self, key, value, exist_ok=True)

    return overwrite
