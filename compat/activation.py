"""Activation of the fixes in one process: gate, swap, arm, and the state that comes of it.

Each target gets its wrapper when its module has been imported, as a pass-through; the last verified target arms the fix. So
a fix is all or nothing, and instances that capture a bound method at `__init__` capture the wrapper.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any

import wrapt

from . import captured, gate, ledger, report, switches
from .engines import ENGINES, Engine, engine_of, loaded_root, version_beside
from .fix import Fix, Place, Target
from .records import Record, describe
from .states import (
    CONFLICT,
    FINAL,
    FIXED_UPSTREAM,
    INSTALLED,
    LATE,
    NOT_AFFECTED,
    OFF,
    PENDING,
    UNKNOWN_SOURCE,
    FixState,
)
from .wrapping import TargetWrapper, live, stands, swap

LEFT_ALONE = {
    ledger.FIXED: FIXED_UPSTREAM,
    ledger.NOT_AFFECTED: NOT_AFFECTED,
    ledger.UNKNOWN: UNKNOWN_SOURCE,
}


class Refused(Exception):
    """A target cannot be wrapped here; carries the state the fix ends in."""

    def __init__(self, state: str, reason: str):
        super().__init__(reason)
        self.state = state


class Activation:
    """All fixes in this process. `module_loaded` is called once for each target module, right after its body has run."""

    def __init__(self, fixes: Iterable[Fix], facts: Callable[[], dict[str, Any]] = dict):
        """`facts()` is what the process record says beside the fixes; it must be cheap and never wait for a GPU."""
        self.states = {fix.id: FixState(fix) for fix in fixes}
        self._facts = facts
        for state in self.states.values():
            state.changed = partial(self._note, ENGINES[state.fix.engine])
        watched = {place.module for engine in ENGINES.values() for place in engine.load_model}
        self.modules = watched.union(*(state.fix.target_modules for state in self.states.values()))
        self._seen: set[str] = set()
        self._verdicts: dict[str, gate.Verdict] = {}
        self._record: Record | None = None
        self._record_refused = False
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forked)

    def module_loaded(self, name: str, *, late: bool = False) -> None:
        """Engage every fix that has a target in module `name`. Lets no exception out."""
        if not switches.killed():
            self._guarded(name, lambda: self._engage_all(name, late))
            self._guarded(name, lambda: self._insist(name))

    def catch_up(self) -> None:
        """Engage the fixes of target modules that were imported before attnfix was active."""
        for name in sorted((self.modules & sys.modules.keys()) - self._seen):
            if not getattr(getattr(sys.modules[name], "__spec__", None), "_initializing", False):
                self.module_loaded(name, late=True)

    def unmet(self, engine: Engine) -> list[FixState]:
        """Fixes of `engine` that are required here (STRICT, or asked for by name) and do not stand."""
        self._look_again()
        version = _version(engine)
        return [
            state
            for state in self.states.values()
            if state.fix.engine == engine.name and self._required(state) and report.unmet(state, version)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """State of every fix as it is now."""
        if switches.killed():
            return [FixState(state.fix, OFF, "ATTNFIX=0").as_dict() for state in self.states.values()]
        self._look_again()
        return [state.as_dict() for state in self.states.values()]

    def _look_again(self) -> None:
        """A target may have been replaced after its fix was installed."""
        for state in self.states.values():
            if state.armed and not all(stands(place, wrapper) for place, wrapper in state.swapped.items()):
                state.settle(CONFLICT, "a target was replaced after the fix was installed")
                state.changed()

    # One module, one fix

    @staticmethod
    def _guarded(module: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # an engine turns an exception here into another backend, silently
            report.warn(module.partition(".")[0], f"activation failed in {module}: {type(error).__name__}: {error}")
            if switches.strict():
                report.refuse(f"activation failed in {module}")

    def _engage_all(self, name: str, late: bool) -> None:
        with self._lock:
            self._seen.add(name)
            engine = engine_of(name)
            self._watch_load(engine, name)
            states = [state for state in self.states.values() if name in state.fix.target_modules]
            for state in states:
                self._engage(state, engine, name, late)
            if states:
                self._publish(engine)

    def _engage(self, state: FixState, engine: Engine, module: str, late: bool) -> None:
        if state.base in FINAL:
            return
        try:
            if reason := self._switched_off(state.fix, engine):
                state.settle(OFF, reason)
                return
            verdict = self._judge(state.fix, engine)
            state.release, state.code = verdict.release, verdict.code
            if not verdict.affected:
                state.settle(LEFT_ALONE[verdict.kind], verdict.reason)
                return
            self._check_origin(verdict, engine)
            for target in state.fix.targets:
                place = next(place for place in target.places if place in verdict.present)
                if place.module == module:
                    self._install(state, target, place, late)
            self._arm(state, verdict)
        except Refused as refusal:
            state.settle(refusal.state, str(refusal))
        except Exception as error:
            state.fail(f"{type(error).__name__}: {error}")
        if state.base in FINAL:
            self._withdraw(state)

    def _switched_off(self, fix: Fix, engine: Engine) -> str | None:
        asked = switches.asked(fix)
        if asked is False:
            return f"{fix.switch}=0"
        if asked is None and not fix.default:
            return f"off by default; {fix.switch}=1 turns it on"
        if not engine.admits_us():
            report.warn(engine.name, f"{engine.allow_list} leaves attnfix out: nothing is patched; add the word attnfix to it")
            return f"{engine.allow_list} leaves attnfix out"
        return None

    def _judge(self, fix: Fix, engine: Engine) -> gate.Verdict:
        if fix.id not in self._verdicts:
            root = loaded_root(engine)
            if root is None:
                raise RuntimeError(f"the package of {engine.name} is not in this process")
            self._verdicts[fix.id] = gate.judge(fix, root)
        return self._verdicts[fix.id]

    def _install(self, state: FixState, target: Target, place: Place, late: bool) -> None:
        standing = live(place)
        if type(standing) is not TargetWrapper:  # `isinstance` believes a foreign wrapper, too
            _check_plain(place, standing, *self._home(place))
            wrapper = TargetWrapper(standing, place)
            swap(place, wrapper)
            if late and (held := captured.rebind(standing, wrapper)):
                swap(place, standing)
                raise Refused(LATE, f"{place.qualname} was already held by {held}; activate attnfix before the engine loads")
            standing = wrapper
        standing.add(state, target.correction)
        state.swapped[place] = standing

    @staticmethod
    def _check_origin(verdict: gate.Verdict, engine: Engine) -> None:
        """Refuse where a witness module was loaded from another file than the one that was judged."""
        root = loaded_root(engine)
        for module in {place.module for place in verdict.present} & sys.modules.keys():
            judged, loaded = root and gate.path_of(root, module), getattr(sys.modules[module], "__file__", None)
            if judged is None or not _same_file(str(judged), loaded):
                raise Refused(CONFLICT, f"{module} was loaded from {loaded}, not from {judged}")

    @staticmethod
    def _home(place: Place) -> tuple[str, int]:
        """(file, line) where the judged definition of a target begins, its decorators included."""
        root = loaded_root(engine_of(place.module))
        if root is None or (node := gate.locate(place, gate.reader(root))) is None:
            raise LookupError(f"{place} is not in the engine's folder")
        decorators = getattr(node, "decorator_list", [])
        line = min([getattr(node, "lineno", 0), *(decorator.lineno for decorator in decorators)])
        return str(gate.path_of(root, place.module)), line

    def _arm(self, state: FixState, verdict: gate.Verdict) -> None:
        missing = [target.name for target in state.fix.targets if not any(p in state.swapped for p in target.places)]
        if missing:
            state.settle(PENDING, f"waiting for the module of {', '.join(missing)}")
            return
        for place, wrapper in state.swapped.items():
            if not stands(place, wrapper):
                raise Refused(CONFLICT, f"{place.qualname} was replaced by {_origin(live(place))} after it was wrapped")
        state.settle(INSTALLED, verdict.reason)

    @staticmethod
    def _withdraw(state: FixState) -> None:
        """Take the wrapper off every target that no other fix uses: a disarmed fix leaves the engine as it was."""
        for place, wrapper in state.swapped.items():
            wrapper.remove(state)
            if not wrapper.in_use and stands(place, wrapper):
                swap(place, wrapper.__wrapped__)
        state.swapped.clear()

    # What the process tells

    def _publish(self, engine: Engine) -> None:
        for complaint in switches.complaints(state.fix for state in self.states.values()):
            report.warn(engine.name, complaint)
        report.summary(engine, _version(engine), self.states.values())
        if self._record is None and not self._record_refused:
            self._open_record(engine)
        self._note(engine)

    def _note(self, engine: Engine) -> None:
        """Bring the record up to date. Called while the engine serves, too: lets no exception out."""
        if self._record is not None:
            with suppress(Exception):
                rows = [state.as_dict() for state in self.states.values()]
                self._record.write({**describe(engine.name, _version(engine), rows), **self._facts()})

    def _open_record(self, engine: Engine) -> None:
        try:
            self._record = Record(len(self.states))
        except (OSError, ValueError) as error:
            self._record_refused = True
            report.warn(engine.name, f"no process record, `attnfix status` will not show this process: {error}")
            return
        for index, state in enumerate(self.states.values()):
            mapped, counters = self._record.counters(index), state.counters
            mapped.calls, mapped.corrections, mapped.rows = counters.calls, counters.corrections, counters.rows
            state.counters = mapped

    def _forked(self) -> None:
        """A forked child gets a record of its own, with counters from zero; the parent's mapping is left alone."""
        from .states import PlainCounters

        self._lock = threading.RLock()
        if self._record is None:
            return
        self._record = None
        for state in self.states.values():
            state.counters = PlainCounters()
        try:
            for engine in ENGINES.values():
                if loaded_root(engine) and any(name.startswith(engine.name + ".") for name in self._seen):
                    self._publish(engine)
        except Exception as error:
            report.warn("attnfix", f"no process record in a forked child: {error}")

    # STRICT

    def _required(self, state: FixState) -> bool:
        return state.base != OFF and (switches.strict() or switches.asked(state.fix) is True)

    def _insist(self, module: str) -> None:
        if unmet := self.unmet(engine_of(module)):
            report.end_process(unmet)

    def _watch_load(self, engine: Engine, module: str) -> None:
        """Under STRICT, look once more when the model is loaded: the last moment before the engine serves."""
        if not switches.strict():
            return

        def load_model(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
            self._guarded(module, lambda: self._insist(module))
            return wrapped(*args, **kwargs)

        for place in engine.load_model:
            if place.module == module and type(standing := live(place)) is FunctionType:
                swap(place, wrapt.FunctionWrapper(standing, load_model))


def _version(engine: Engine) -> str | None:
    """What the engine in this process calls itself; None where it left no metadata."""
    root = loaded_root(engine)
    return version_beside(root) if root else None


def _check_plain(place: Place, standing: Any, file: str, line: int) -> None:
    """Refuse a target that is not the plain function which stands at that line of the judged file."""
    if type(standing) is not FunctionType:
        raise Refused(CONFLICT, f"{place.qualname} is already wrapped or replaced by {_origin(standing)}")
    code = standing.__code__
    if not _same_file(file, code.co_filename) or code.co_firstlineno != line:
        raise Refused(CONFLICT, f"{place.qualname} was replaced by {_origin(standing)}")


def _same_file(a: str, b: str | None) -> bool:
    return b is not None and os.path.realpath(a) == os.path.realpath(b)


def _origin(value: Any) -> str:
    """Who put `value` there, as well as it can be named."""
    by = getattr(value, "_self_wrapper", None) or value
    code = getattr(by, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(by, '__module__', type(by).__module__)}.{getattr(by, '__qualname__', type(by).__qualname__)}{where}"

