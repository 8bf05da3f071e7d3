"""The one wrapper that stands on a target, a `wrapt.FunctionWrapper`: runs the corrections of every armed fix, else passes.

A correction has two parts. `needed(target, instance, …)` looks, changes nothing in the engine, and returns something false
where this call has nothing to correct; `correct(call, instance, …)` corrects, and gets what `needed` returned as `call.found`.
Both name the arguments they use as the engine's function does; where these come from is resolved once, when the fix is added.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pkgutil import resolve_name
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ..fix import CodePath, Correct, Needed
from ..gate import module_lookup
from ..status.fix_state import FixState, KernelObservation
from . import installed_wrapt, serving_failure

if TYPE_CHECKING:
    import wrapt

    from .. import fix
else:
    wrapt = installed_wrapt.wrapt()

#: In the place of a result: the engine's function was not called yet, or has not returned
NOT_CALLED, RUNNING = object(), object()
_NO_DEFAULT = object()

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
#: Either part of a correction: (target or call, instance, args, kwargs), the latter as wrapt gives them
Part = Callable[[Any, Any, Arguments, Keywords], Any]


class WrongCall(Exception):
    """The caller left out an argument: the engine's own function is to say so."""


class Correction:
    """The correction of one fix on one target. `inside` are those that it stands around, the outermost first.

    It is what `needed` gets as `target`, and what `correct` has as `call.target`.
    """

    __slots__ = (
        "act",
        "at_start",
        "correct",
        "function",
        "inside",
        "is_method",
        "look",
        "needed",
        "repeatable",
        "run_inside",
        "state",
    )

    def __init__(self, function: FunctionType, is_method: bool, state: FixState, correct: Correct, needed: Needed | None,
                 inside: tuple[Correction, ...], repeatable: bool = False):  # fmt: skip
        self.function, self.is_method, self.state, self.inside = function, is_method, state, inside
        self.correct, self.needed, self.repeatable = correct, needed, repeatable
        self.at_start = serving_failure.runs_at_start(function)
        self.act = by_name(correct, function, is_method)
        self.look = by_name(needed, function, is_method) if needed else None
        self.run_inside = _runner([inside], is_method)
        _run_as_it_stands(self.run_inside)

    @property
    def engine_function(self) -> FunctionType | None:
        """The engine's function, a method's unbound; None where another fix's correction runs in between."""
        return None if any(link.state.armed or link.state.observed for link in self.inside) else self.function

    @property
    def release(self) -> str | None:
        """The release whose code this is, by the ledger."""
        return self.state.release

    @property
    def left_alone(self) -> set[tuple[Hashable, ...]]:
        """Kernel paths that are left as they are."""
        return self.state.left_alone

    def observation(self, path: tuple[Hashable, ...]) -> KernelObservation | None:
        """What was seen of this kernel path in this process; None before `observe`."""
        return self.state.observations.get(path)

    def observe(self, path: tuple[Hashable, ...], observation: KernelObservation) -> None:
        """Keep what was seen of a kernel path: it goes into the record; a kernel that is left alone, to the log, too."""
        self.state.found(path, observation)

    def corrected(self, rows: int = 0) -> None:
        """Count one correction of `rows` rows. Host-known numbers only: counting never waits for a GPU."""
        counters = self.state.counters
        counters.corrections += 1
        counters.rows += rows
        if not self.state.fired:
            self.state.first_correction(rows)

    def give_up(self, reason: str) -> None:
        """Disarm the fix for good, from within a correction that has made sure of a result by itself."""
        serving_failure.give_up(self.state, reason)

    def leave_out(self, reason: str) -> None:
        """Say once that calls are left as they are, since a correction would change what others read."""
        self.state.leave_out(reason)


class Call:
    """One call that is corrected: `call()` runs the engine's function, with the corrections inside this one around it.

    It notes how far that came, so that a correction that fails never takes the engine's result with it. `failed`: a function
    from `guard` or `watch` raised. `changed`: the engine's function was last called otherwise than by its caller.
    """

    __slots__ = ("args", "changed", "failed", "found", "instance", "kwargs", "result", "target", "wrapped")

    def __init__(self, target: Correction, wrapped: Any, instance: Any, args: Arguments, kwargs: Keywords, found: Any):
        self.target, self.wrapped, self.instance, self.found = target, wrapped, instance, found
        self.args, self.kwargs = args, kwargs
        self.result: Any = NOT_CALLED
        self.changed = self.failed = False

    def __call__(self, **changes: Any) -> Any:
        """What the engine's function returns for the arguments it was called with; `changes` go in by name."""
        args, kwargs = self._with(changes) if changes else (self.args, self.kwargs)
        self.result, self.changed = RUNNING, bool(changes)
        target = self.target
        if target.inside:
            self.result = target.run_inside(self.wrapped, self.instance, args, kwargs)
        else:
            self.result = self.wrapped(*args, **kwargs)
        return self.result

    def run(self, function: Callable[..., Any], *instance: Any) -> Any:
        """The same of a `function` that stands for the engine's: its own code with a global bound to something else.

        `instance`: who it is called on, where that is not the call's own.
        """
        self.result, self.changed = RUNNING, True
        of = instance or ((self.instance,) if self.target.is_method else ())
        self.result = function(*of, *self.args, **self.kwargs)
        return self.result

    def corrected(self, rows: int = 0) -> None:
        """`Correction.corrected`, unless the correction failed."""
        if not self.failed:
            self.target.corrected(rows)

    def guard(self, ours: Callable[..., Any], stock: Callable[..., Any], *, plans: bool = False) -> Callable[..., Any]:
        """`ours`, for the engine to call while its own function runs, or later. Where it raises, as for want of a compiler,
        `stock` gets the same arguments, and the fix is given up. An error of `stock` is the engine's own. Once the fix is not
        armed, `stock` alone runs. The engine gets the error of `ours` where `serving_failure` says so: for want of memory, too,
        but not from what `plans`, captures or compiles."""

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if not self.target.state.armed:
                return stock(*args, **kwargs)
            try:
                return ours(*args, **kwargs)
            except Exception as error:
                if not serving_failure.spares(self.target.state, error, plans):
                    self.fail(ours, error, plans)
                failure = error
            try:
                result = stock(*args, **kwargs)  # outside of the `except`: an error of the engine's has no other behind it
                self.fail(ours, failure, plans)
            finally:
                del failure  # its traceback holds this frame, and with it the arguments
            return result

        return guarded

    def watch(self, stock: Callable[..., Any], after: Callable[..., Any]) -> Callable[..., Any]:
        """`stock`, for the engine to call while its own function runs: `after(result, …)` gets what it returned and its
        arguments, and may change the result in place. Where it raises, the fix is given up, and the result stays."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            result = stock(*args, **kwargs)
            if self.target.state.armed:
                try:
                    after(result, *args, **kwargs)
                except Exception as error:
                    self.fail(after, error)
            return result

        return watched

    def fail(self, part: Callable[..., Any], error: Exception, plans: bool = False) -> None:
        """Carry out the policy for `part`, which raised `error`. It returns where the engine's own result serves."""
        self.failed = True
        try:
            serving_failure.settle(self.target.state, part, error, plans)
        finally:
            del error  # its traceback, where it is raised again, holds this frame

    def _with(self, changes: dict[str, Any]) -> tuple[Arguments, Keywords]:
        args, kwargs = list(self.args), dict(self.kwargs)
        names = _positional(self.target.function, self.target.is_method)
        for name, value in changes.items():
            if name in names[: len(args)]:
                args[names.index(name)] = value
            else:
                kwargs[name] = value
        return tuple(args), kwargs


if TYPE_CHECKING:
    _call: type[fix.Call] = Call  # what a correction may use of it


def _runner(chain: list[tuple[Correction, ...]], is_method: bool) -> Callable[[Any, Any, Arguments, Keywords], Any]:
    """wrapt's form of a wrapper, for the corrections that `chain` holds, in one cell that is replaced as a whole.

    A plain list that the function closes over: to read an attribute of a wrapt proxy costs as much as a call.
    """

    def run(wrapped: Any, instance: Any, args: Arguments, kwargs: Keywords) -> Any:
        if instance is None and is_method and args:  # taken out of the class past its descriptor
            wrapped, instance, args = partial(wrapped, args[0]), args[0], args[1:]
        for link in chain[0]:
            state, look = link.state, link.look
            if not state.armed or (state.recheck_on_first_call and not _confirmed(state)):
                if state.observed:
                    _look_alone(link, instance, args, kwargs)
                continue
            state.counters.calls += 1
            call = found = None
            try:
                if look is not None:
                    found = look(link, instance, args, kwargs)
                    if not found:
                        continue
                call = Call(link, wrapped, instance, args, kwargs, found)
                return link.act(call, instance, args, kwargs)
            except WrongCall:
                break
            except Exception as error:
                running = call is not None and call.result is RUNNING
                if running and not serving_failure.is_ours(error, link.correct):
                    raise  # the engine's own
                serving_failure.settle(state, link.correct if call else link.needed, error, link.at_start)
                if call is None or call.result is NOT_CALLED or (link.repeatable and (running or call.changed)):
                    continue  # the engine's function runs as its caller called it
                if running:
                    raise  # it is half-way, and may not be run again
                return call.result
        return wrapped(*args, **kwargs)

    return run


def _look_alone(link: Correction, instance: Any, args: Arguments, kwargs: Keywords) -> None:
    """Count a call, and whether a correction would have run in it. A look that raises is the last one of its fix."""
    state = link.state
    try:
        if state.recheck_on_first_call:
            state.recheck_on_first_call()
            state.recheck_on_first_call = None
            if not state.observed:
                return
        state.looks.calls += 1
        if link.look and link.look(link, instance, args, kwargs):
            state.looks.needed += 1
            if not state.fired:
                state.first_needed()
    except WrongCall:
        pass
    except Exception as error:
        with suppress(Exception):  # such as no memory for the traceback
            state.fail(serving_failure.reason_of(link.needed, error), error)


def _confirmed(state: FixState) -> bool:
    try:
        if recheck_on_first_call := state.recheck_on_first_call:
            recheck_on_first_call()
    except Exception as error:  # what nobody could check is not to be corrected
        if serving_failure.is_shortage(error):
            serving_failure.settle(state, _confirmed, error)
            return False  # the next call is checked
        serving_failure.give_up(state, f"the check at the first call raised {type(error).__name__}: {error}", error)
    state.recheck_on_first_call = None  # not before: a first call in another thread is not to be corrected meanwhile
    if not state.armed:
        serving_failure.lost(state)
    return state.armed


def _run_as_it_stands(*functions: Any) -> None:
    """Dynamo, where a compiled region leads to a wrapper, is to compile the engine's functions beneath it, not these."""
    if skip := getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None):
        for function in functions:
            skip(function.__code__)


# Arguments by name


def by_name(part: Callable[..., Any], function: FunctionType, is_method: bool) -> Part:
    """`part` for a call of the engine's `function` as wrapt gives it. The arguments that `part` names come from what the caller
    wrote, however they wrote it, else from the engine's defaults.

    One that the engine's function does not have must have a default in `part`, which is taken. Raises LookupError otherwise.
    """
    names, own_defaults = list(_names(part)[2:]), _defaults(part)
    positional, defaults = _positional(function, is_method), _defaults(function)
    unknown = set(names) - {*positional, *_keyword_only(function)}
    if missing := [name for name in names if name in unknown and name not in own_defaults]:
        raise LookupError(f"{function.__qualname__} has no parameter {missing[0]}")
    while names and names[-1] in unknown:
        names.pop()
    defaults |= {name: own_defaults[name] for name in names if name in unknown}
    from_names = _picking(part, names)
    _run_as_it_stands(part, from_names)

    def by_names(first: Any, instance: Any, args: Arguments, kwargs: Keywords) -> Any:
        given = kwargs
        for name in names:
            if name not in given:
                given = {**defaults, **dict(zip(positional, args)), **kwargs}
                if name not in given:
                    raise WrongCall(name)
        return from_names(first, instance, given)

    _run_as_it_stands(by_names)
    if not all(name in positional for name in names):
        return by_names
    at = [positional.index(name) for name in names]
    from_positions, most = _picking(part, at), max(at, default=-1) + 1

    def by_positions(first: Any, instance: Any, args: Arguments, kwargs: Keywords) -> Any:
        return from_positions(first, instance, args) if most <= len(args) else by_names(first, instance, args, kwargs)

    _run_as_it_stands(from_positions, by_positions)
    return by_positions


def _picking(part: Callable[..., Any], keys: Sequence[Any]) -> Callable[[Any, Any, Any], Any]:
    """`part` with what `given` holds under these keys. Up to three are written out: `*` costs as much as all else."""
    match keys:
        case []:
            return lambda first, instance, given: part(first, instance)
        case [a]:
            return lambda first, instance, given: part(first, instance, given[a])
        case [a, b]:
            return lambda first, instance, given: part(first, instance, given[a], given[b])
        case [a, b, c]:
            return lambda first, instance, given: part(first, instance, given[a], given[b], given[c])
    pick = itemgetter(*keys)
    return lambda first, instance, given: part(first, instance, *pick(given))


def _names(function: Any) -> tuple[str, ...]:
    code: CodeType = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _positional(function: FunctionType, is_method: bool) -> tuple[str, ...]:
    """Names of what may come by position, `self` aside."""
    code = function.__code__
    return code.co_varnames[is_method : code.co_argcount]


def _keyword_only(function: FunctionType) -> tuple[str, ...]:
    return _names(function)[function.__code__.co_argcount :]


def _defaults(function: Any) -> dict[str, Any]:
    by_position = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return {**dict(zip(names[len(names) - len(by_position) :], by_position)), **(function.__kwdefaults__ or {})}


# What stands in the engine

if TYPE_CHECKING:  # wrapt 1 has no subscripts, and an annotation of EngineProxy would hide those of the engine's function
    _BoundFunctionWrapper = wrapt.BoundFunctionWrapper[..., Any]

    class _FunctionWrapper(wrapt.FunctionWrapper[..., Any]):
        _self_target: WrappedTarget
else:
    _BoundFunctionWrapper, _FunctionWrapper = wrapt.BoundFunctionWrapper, wrapt.FunctionWrapper


class _Opaque:
    """Dynamo runs what is called here as it stands, corrections included, and compiles what is around it.

    Without this it would look through wrapt's proxy, leave the corrections out, and fail on a guard where the engine's function
    has defaults.
    """

    __slots__ = ()  # else `__dict__` would be the wrapper's own, which cloudpickle takes for the function's

    _torchdynamo_disable = True
    _torchdynamo_disable_msg = "attnfix corrects this function; ATTNFIX=0 leaves it to the compiler"


class _Bound(_Opaque, _BoundFunctionWrapper):
    """A wrapped method of an instance or a class. It pickles and copies as a bound method does: by its owner and its name."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._self_instance is None:
            return self._self_parent.__reduce_ex__(protocol)
        return getattr, (self._self_instance, self.__name__)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        from copy import deepcopy

        return self if self._self_instance is None else getattr(deepcopy(self._self_instance, memo), self.__name__)


class EngineProxy(_Opaque, _FunctionWrapper):
    """What stands at a code path in the engine. It pickles and copies by its path, as a function does: whoever loads it gets
    what stands there."""

    __bound_function_wrapper__ = _Bound  # without it each bound call costs 0.4 µs more

    def __reduce_ex__(self, protocol: Any) -> Any:
        return resolve_name, (str(self._self_target.code_path),)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class WrappedTarget:
    """What attnfix has put on the engine's function `wrapped` at `code_path`: `function`, and the corrections that it runs."""

    __slots__ = ("_chain", "code", "code_path", "function", "is_method", "wrapped")

    def __init__(self, wrapped: FunctionType, code_path: CodePath):
        self.wrapped, self.code_path, self.is_method = wrapped, code_path, "." in code_path.qualname
        self.code = wrapped.__code__  # that was judged: another may be put into the function
        # Its one entry is changed as a whole: a call in another thread goes through the former corrections or the new ones
        self._chain: list[tuple[Correction, ...]] = [()]
        self.function: Any = EngineProxy(wrapped, _runner(self._chain, self.is_method))
        self.function._self_target = self

    @staticmethod
    def of(standing: Any) -> WrappedTarget | None:
        """The wrapper whose function `standing` is; None for anything else, and for what somebody wrapped around it."""
        return standing._self_target if type(standing) is EngineProxy else None

    @property
    def links(self) -> tuple[Correction, ...]:
        """The outermost first."""
        return self._chain[0]

    def add(
        self, state: FixState, correct: Correct, needed: Needed | None = None, *, repeatable: bool = False
    ) -> WrappedTarget:
        """Raises LookupError where the engine's function has no parameter of a name that the correction uses."""
        if all(link.state is not state for link in self.links):
            self._chain[0] = self._around(self.links, state, correct, needed, repeatable)
        return self

    def remove(self, state: FixState) -> None:
        links: tuple[Correction, ...] = ()
        for link in reversed(self.links):
            if link.state is not state:
                links = self._around(links, link.state, link.correct, link.needed, link.repeatable)
        self._chain[0] = links

    @property
    def in_use(self) -> bool:
        return bool(self.links)

    def _around(
        self, inside: tuple[Correction, ...], state: FixState, correct: Correct, needed: Needed | None, repeatable: bool
    ) -> tuple[Correction, ...]:
        return Correction(self.wrapped, self.is_method, state, correct, needed, inside, repeatable), *inside


def owner_of(code_path: CodePath) -> Any:
    """The class or module that holds the target, in the modules loaded here. Raises AttributeError or KeyError."""
    owner: Any = module_lookup.module(code_path.module)
    if owner is None:
        raise KeyError(code_path.module)
    for name in code_path.qualname.split(".")[:-1]:
        owner = getattr(owner, name)
    return owner


def live(code_path: CodePath) -> Any:
    """The attribute as it stands now, not bound to anything. Raises KeyError if the owner itself does not define it."""
    return vars(owner_of(code_path))[code_path.qualname.rpartition(".")[2]]


def stands(code_path: CodePath, value: Any) -> bool:
    """Whether `value` is what the attribute holds now."""
    try:
        return live(code_path) is value
    except (AttributeError, KeyError):
        return False


def swap(code_path: CodePath, value: Any) -> None:
    setattr(owner_of(code_path), code_path.qualname.rpartition(".")[2], value)
