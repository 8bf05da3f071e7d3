"""What a proof is made of: the class `Proof`, what it returns, and what several proofs use.

Every `patches/*/*/proof.py` ends in `class Proof`, which derives from the one here: under this name `attnfix.prove` finds it.
"""

from __future__ import annotations

import dis
import hashlib
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

_device = ["cpu"]


def device() -> str:
    """Where a proof makes its tensors: "cpu", or "cuda" where the engine's Triton kernels are compiled and run."""
    return _device[0]


def run_on(device: str) -> None:
    _device[0] = device


class NoSuchPath(Exception):
    """This release does not have the code path of the bug at all: raised by `prepare` or `scenario`, from structure."""


@dataclass(frozen=True)
class Observation:
    """How wrong a result is, and exactly what it is.

    error: relative error ‖out - ref‖ / ‖ref‖ against float64 (inf if anything is not finite), or what `Proof.measure` says.
    bits: a hash of the exact bits.
    """

    error: float
    bits: str


class Proof:
    """That the engine's own code is wrong on inputs that reach the bug, and right with the fix.

    The same proof serves the stock and the fixed side. It never calls a wrapper: the installed gate patches, or nothing does.
    The class is read without an engine; making an object imports the engine's modules, and raises what their import raises.
    """

    #: Names of the engine's modules that the proof needs
    modules: tuple[str, ...] = ()
    #: Those of them that a release need not have
    may_lack: tuple[str, ...] = ()
    #: "emulated" where a stand-in replaces a GPU kernel, "interpreted" where the engine's own Triton kernel runs in Triton's
    #: interpreter, "none" where no kernel is involved, else "real". Where it is "interpreted", tensors are made on `device()`:
    #: on a GPU the kernel is then compiled, and "real"
    kernel = "emulated"
    #: What an Observation's error counts, where it is not the relative error against float64
    measure: str | None = None

    # A fault that no published release has is put back into one, in a copy and by an edit of its AST

    #: Releases it is put into
    edited: tuple[str, ...] = ()
    #: name -> edit(read) -> {module: new source}; `read(module)` is the release's own source
    edits: Mapping[str, Callable[[Callable[[str], str]], dict[str, str]]] = {}
    #: Names of edits that the gate must not recognise
    unrecognised: frozenset[str] = frozenset()

    #: Ways around the bug, as `Fix.avoid` writes them -> attributes of the proof on a server that is launched so. Its scenario
    #: gets the same inputs, and stock must be right in it. `scripts/ledger/ways_around.py` runs them
    around: Mapping[str, Mapping[str, Any]] = {}

    @classmethod
    def avoiding(cls, way: str) -> type[Proof]:
        """The proof on a server that is launched so; its scenario or its preparation raises NoSuchPath where there is no such
        way."""
        return type(cls.__name__, (cls,), dict(cls.around[way]))

    def __init__(self) -> None:
        #: name -> module, of those that this release has
        self.engine: dict[str, Any] = {name: module for name in self.modules if (module := self._imported(name))}

    def _imported(self, name: str) -> Any:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if name in self.may_lack and error.name and f"{name}.".startswith(f"{error.name}."):
                return None
            raise

    def prepare(self) -> None:
        """Put the stand-ins in place: called once, before anything else. Raises NoSuchPath."""

    def scenario(self, seed: int) -> Observation | Iterable[Observation]:
        """Run the engine's code on inputs drawn from `seed` that reach the bug. Raises NoSuchPath.

        A long one gives its observations one by one: a sabotage has to spoil one of them, and what comes behind it is not run.
        """
        raise NotImplementedError

    def control(self, seed: int) -> Observation | Iterable[Observation]:
        """The same on inputs that the bug does not touch."""
        raise NotImplementedError

    def sabotages(self) -> dict[str, AbstractContextManager[Any]]:
        """name -> context, of ways to break the correction: within each of them the scenario must be wrong."""
        raise NotImplementedError


class Cases(Proof):
    """A proof as data: cases that reach the bug, cases that it spares, and ways to break the correction.

    A family's base in `lab/<engine>/` derives from this and says in `run` what a case is.
    """

    #: The place of the bug, in the first of `modules`: "Class.method", or "Class.method: name" for code that uses that name;
    #: in another of them, "module:Class.method". Of several, separated by " or ", one is enough, and with " and " all are
    #: needed. Empty where every release has it
    needs = ""
    #: The reason that is told of a release without that place
    absent = ""
    #: Cases that are wrong on the stock side. One that has a `where` is run in releases that have that place
    bug: tuple[Any, ...] = ()
    #: Cases that are right on the stock side, have the same bits on both, and in which no correction is counted
    spared: tuple[Any, ...] = ()
    #: sentence -> (function, replacement): the replacement gets the function itself, then its arguments. A constant is
    #: (module, name, value). Several of them are a list
    broken: Mapping[str, Any] = {}
    #: sentence -> place, written as `needs`: that way is tried where a release has it; with "no " in front, where it lacks it
    broken_where: Mapping[str, str] = {}

    def run(self, case: Any, seed: int) -> Observation:
        """Run one case on inputs drawn from `seed`. Raises NoSuchPath."""
        raise NotImplementedError

    def prepare(self) -> None:
        if self.needs and not self._has(self.needs):
            raise NoSuchPath(self.absent or f"no {self.needs}")

    def _has(self, places: str) -> bool:
        if " and " in places:
            return all(map(self._has, places.split(" and ")))
        if places.startswith("no "):
            return not self._has(places.removeprefix("no "))
        return any(map(self._has_one, places.split(" or ")))

    def _has_one(self, place: str) -> bool:
        path, _, name = place.partition(": ")
        module, _, path = path.rpartition(":")
        return _uses(self.engine.get(module or self.modules[0]), path, name)

    def scenario(self, seed: int) -> Iterable[Observation]:
        return self._run(self.bug, seed)

    def control(self, seed: int) -> Iterable[Observation]:
        return self._run(self.spared, seed)

    def _run(self, cases: tuple[Any, ...], seed: int) -> Iterator[Observation]:
        return (self.run(case, seed) for case in cases if self._has(getattr(case, "where", "")))

    def sabotages(self) -> dict[str, AbstractContextManager[Any]]:
        tried = {name: way for name, way in self.broken.items() if self._has(self.broken_where.get(name, ""))}
        return {name: _broken(*(way if isinstance(way, list) else [way])) for name, way in tried.items()}


def _uses(module: Any, path: str, name: str = "") -> bool:
    """Whether the module has what is at `path`, and its code uses `name`."""
    found = module
    for part in path.split(".") if path else ():
        found = None if found is None else getattr(found, part, None)
    if found is None or not name:
        return found is not None
    return any(
        name == one.argval or ("FAST" in one.opname and isinstance(one.argval, tuple) and name in one.argval)
        for one in dis.get_instructions(code_of(found))
    )


@contextmanager
def _broken(*ways: tuple[Any, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for first, *rest in ways:
            if callable(first):
                owner, name, value = sys.modules[first.__module__], first.__name__, partial(rest[0], first)
            else:
                owner, (name, value) = first, rest
            stack.enter_context(replaced(owner, name, value))
        yield


def code_of(function: Any) -> CodeType:
    """The engine's own code, whoever stands around the function."""
    return inspect.unwrap(function).__code__


def observe(out: Any, reference: Any) -> Observation:
    """Compare a result of the engine (any float dtype) with its float64 reference of the same shape."""
    import torch

    if out.shape != reference.shape:
        raise ValueError(f"result has shape {tuple(out.shape)}, the reference {tuple(reference.shape)}")
    finite = bool(torch.isfinite(out.double()).all())
    error = float((out.double() - reference).norm() / reference.norm()) if finite else math.inf
    raw = out.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return Observation(error, hashlib.sha256(raw).hexdigest())


def combine(*observations: Observation) -> Observation:
    """Several observations as one: the worst error, and a hash of all their bits."""
    worst = max(observation.error for observation in observations)
    return Observation(worst, hashlib.sha256("".join(observation.bits for observation in observations).encode()).hexdigest())


def observed(seen: Observation | Iterable[Observation], limit: float = math.inf) -> Observation:
    """What a scenario or a control gives, as one observation: of several, up to the first whose error is above `limit`."""
    return seen if isinstance(seen, Observation) else combine(*each(seen, limit))


def each(seen: Observation | Iterable[Observation], limit: float = math.inf) -> list[Observation]:
    """The observations of a scenario or a control, up to the first whose error is above `limit`."""
    found = []
    for observation in [seen] if isinstance(seen, Observation) else seen:
        found.append(observation)
        if observation.error > limit:
            break
    return found


def cumulative(lens: Iterable[int]) -> Any:
    """[0, l0, l0+l1, …] as int32."""
    import torch

    return torch.tensor([0, *lens], dtype=torch.int32).cumsum(0, dtype=torch.int32)


@contextmanager
def replaced(owner: Any, name: str, value: Any):
    """Set an attribute for the duration of a block."""
    former = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former)


def fixup_sabotages() -> dict[str, Any]:
    """Ways to break `fixup_zero_kv_rows`, for the proofs of every fix that stands on it."""
    import attnfix.kernels as kernels

    real = kernels.fixup_zero_kv_rows

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    def one_row_missed(out: Any, lse: Any, *args: Any, **kwargs: Any) -> None:
        before = out.clone(), lse.clone()
        real(out, lse, *args, **kwargs)
        changed = ((lse != before[1]).any(-1) | (out != before[0]).flatten(1).any(-1)).nonzero()
        if len(changed):
            row = int(changed[0])
            out[row], lse[row] = before[0][row], before[1][row]

    def zero_lse(out: Any, lse: Any, *args: Any, **kwargs: Any) -> None:
        real(out, lse, *args, **kwargs)
        lse.masked_fill_(lse.isinf(), 0.0)

    return {
        "the correction does nothing": replaced(kernels, "fixup_zero_kv_rows", nothing),
        "one row is missed": replaced(kernels, "fixup_zero_kv_rows", one_row_missed),
        "empty rows get lse 0": replaced(kernels, "fixup_zero_kv_rows", zero_lse),
    }
