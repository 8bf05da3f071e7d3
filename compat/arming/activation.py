"""Activation of the fixes in one process: gate, swap, arm, and the state that comes of it.

Each target gets its wrapper when its module has been imported, as a pass-through; the last verified target arms the fix. So
a fix is all or nothing, and instances that capture a bound method at `__init__` capture the wrapper.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from functools import cache, partial, wraps
from types import FunctionType
from typing import Any

from ..engines import ENGINES, Engine, engine_of, loaded_root, version_of
from ..fix import Judgeable
from ..gate import judge, ledger, loaded_code, module_lookup, source_files
from ..status import messages
from ..status.fix_state import (
    CONFLICT,
    DORMANT,
    FAILED,
    FINAL,
    FIXED_UPSTREAM,
    INSTALLED,
    NOT_AFFECTED,
    OBSERVED,
    OFF,
    PENDING,
    UNKNOWN_SOURCE,
    Event,
    FixState,
)
from ..status.recorder import Recorder
from . import switches, witnesses
from .patch_points import Refused, home, standing_at, take
from .wrapper import live, swap

LEFT_ALONE = {
    ledger.FIXED: FIXED_UPSTREAM,
    ledger.NOT_AFFECTED: NOT_AFFECTED,
    ledger.UNKNOWN: UNKNOWN_SOURCE,
}
HEALTHY = (ledger.FIXED, ledger.NOT_AFFECTED)
_STANDS = (INSTALLED, OBSERVED)


class Activation:
    """All fixes in this process. `module_loaded` is called once for each target module, right after its body has run."""

    def __init__(
        self,
        fixes: Iterable[Judgeable] = (),
        facts: Callable[[], dict[str, Any]] = dict,
        every_fix: Callable[[], Iterable[Judgeable]] = tuple,
    ):
        """`facts()` is what the process record says beside the fixes; it must be cheap and never wait for a GPU. `every_fix()`
        are those of engines that this process may never import, too: asked where a variable is no switch of those it has."""
        self.states: dict[str, FixState] = {}
        self._recorder = Recorder(lambda: self.states.values(), facts)
        self._every_fix = every_fix
        self.modules = watched_modules(())
        self._seen: set[str] = set()
        self._refusal: tuple[object, switches.Refusal | None] = None, None
        self._verdicts: dict[str, tuple[loaded_code.Stamp, judge.Verdict]] = {}
        self._lock = threading.RLock()
        # A fork waits until no fix is half-way in another thread: its child would keep it so for ever
        this = weakref.ref(self)
        os.register_at_fork(
            before=partial(_if_alive, this, lambda activation: activation._lock.acquire()),
            after_in_parent=partial(_if_alive, this, lambda activation: activation._lock.release()),
            after_in_child=partial(_if_alive, this, Activation._forked),
        )
        self.add(fixes)

    def add(self, fixes: Iterable[Judgeable]) -> None:
        """Have these fixes, too, those of an engine together. In one thread at a time; others may use those that are there."""
        more = {fix.id: FixState(fix, on_event=self._on_event) for fix in fixes}
        self.modules = self.modules | watched_modules(state.fix for state in more.values())
        self.states = {**self.states, **more}
        self._recorder.note()

    def _on_event(self, state: FixState, event: Event, detail: Any) -> None:
        """Something happened while the engine serves: it is said, and recorded."""
        messages.tell(state, event, detail)
        self._recorder.note()

    def has_fixes_of(self, engine: str) -> bool:
        return any(state.fix.engine == engine for state in self.states.values())

    def module_loaded(self, name: str, *, late: bool = False) -> None:
        """From the import hook to the status, for every fix that has a target in module `name`. Lets no exception out but an
        interrupt, as by Ctrl-C."""
        module_lookup.module(name)  # seen now, so it is not gone when Python takes it out for a moment
        if not switches.killed():
            self._guarded(name, partial(self._install_fixes, name, late), required=True)
            self._guarded(name, partial(self._report, name), required=False)
            self._guarded(name, partial(self._enforce_strict, name), required=True)

    def catch_up(self) -> None:
        """Install the fixes of target modules that were imported before attnfix was active."""
        for name in sorted((self.modules & sys.modules.keys()) - self._seen):
            module = module_lookup.module(name)
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self.module_loaded(name, late=True)

    def unmet(self, engine: Engine) -> list[FixState]:
        """Fixes of `engine` that are required here (STRICT, or asked for by name) and do not stand."""
        required = [state for state in self.states.values() if state.fix.engine == engine.name and self._required(state)]
        version = version_of(engine) if required else None
        self._verify_in_place()
        for state in required:
            if state.armed and state.recheck_on_first_call:
                state.recheck_on_first_call()  # and once more at the first call
        return [state for state in required if messages.unmet(state, version)]

    def rows(self) -> list[dict[str, Any]]:
        """State of every fix as it is now."""
        if switches.killed():
            return [FixState(state.fix, OFF, "ATTNFIX=0").as_dict() for state in self.states.values()]
        self._verify_in_place()
        return [state.as_dict() for state in self.states.values()]

    def _verify_in_place(self) -> None:
        """A target may have been replaced after its fix was installed."""
        with self._lock:
            for state in self.states.values():
                gone = [code_path for code_path, point in state.patch_points.items() if not point.stands]
                if state.base in _STANDS and gone:
                    self._lost(state, f"{gone[0].qualname} was replaced by {standing_at(gone[0])} after it was wrapped")

    @staticmethod
    def _lost(state: FixState, reason: str) -> None:
        """A fix that is armed or observed cannot stay so: somebody else has changed what it stands on."""
        was = state.base
        state.settle(CONFLICT, reason)
        messages.warn(state.fix.engine, f"{state.fix.id} is not {was} any more: {reason}", state)
        state.changed()

    # One module, one fix

    def _guarded(self, module: str, step: Callable[[], None], *, required: bool) -> None:
        """Run one step. Where it raises, a process that requires a fix ends; unless the step only tells what was done."""
        try:
            step()
        except Exception as error:  # an engine turns an exception here into another backend, silently
            reason = f"activation failed in {module}: {type(error).__name__}: {error}"
            if required and any(map(self._required, self.states.values())):
                messages.refuse(reason)
            messages.warn(module.partition(".")[0], reason)

    def _install_fixes(self, name: str, late: bool) -> None:
        """Every fix that has a target in module `name`, as far as it comes."""
        with self._lock:
            states = self._with_target_in(name)
            try:
                engine = engine_of(name)
                self._watch_load(engine, name)
                # One look at the files, and at what is refused, for all fixes of the module
                look, refused = cache(partial(_sources, engine)), cache(self._refused)
                for state in states:
                    if state.base not in FINAL:
                        self._try_step(state, partial(self._install, state, engine, look, refused, name, late))
                self._seen.add(name)
            except BaseException as error:
                # An interrupt, too, must leave nothing half-way: it may be caught, and the engine serve
                for state in states:
                    if state.base in (DORMANT, PENDING, *_STANDS):
                        state.settle(FAILED, f"interrupted in {name} by {type(error).__name__}")
                        self._withdraw(state)
                raise

    def _install(
        self,
        state: FixState,
        engine: Engine,
        look: Callable[[], source_files.Sources],
        refused: Callable[[], switches.Refusal | None],
        module: str,
        late: bool,
    ) -> None:
        """One fix: gate, wrappers, armed. A step that stops here raises `Refused` with the state that the fix is left in."""
        self._check_switches(state.fix, engine)
        sources = look()
        verdict = self._judge(state, sources)
        self._check_affected(state.fix, verdict, refused)
        self._check_observable(state)
        witnesses.check_files(verdict, sources)
        self._take_patch_points(state, verdict, sources, module, late)
        self._arm(state, verdict, sources)

    def _try_step(self, state: FixState, step: Callable[[], None]) -> None:
        """One step towards an armed fix. Whatever goes wrong becomes its state, and it leaves the engine as it was."""
        try:
            step()
        except Refused as refusal:
            state.settle(refusal.state, str(refusal))
        except ledger.LedgerError as error:
            state.settle(UNKNOWN_SOURCE, str(error))
        except Exception as error:
            state.fail(f"{type(error).__name__}: {error}")
        if state.base in FINAL:
            self._withdraw(state)

    def _report(self, name: str) -> None:
        """Log and record what became of the fixes in module `name`."""
        with self._lock:
            engine, states = engine_of(name), self._with_target_in(name)
            if states:
                self._log_summary(engine)
            self._recorder.open(engine if states else None)

    def _log_summary(self, engine: Engine) -> None:
        if (refusal := self._refused()) and engine.admits_us():
            messages.error(engine.name, str(refusal))
        for complaint in switches.complaints(self._all_fixes()):
            messages.warn(engine.name, complaint)
        messages.summary(engine, version_of(engine), self.states.values())

    def _all_fixes(self) -> Iterator[Judgeable]:
        """Those that this process has, then those of every engine: asked for no further than it takes."""
        yield from (state.fix for state in self.states.values())
        yield from self._every_fix()

    def _refused(self) -> switches.Refusal | None:
        """What `switches.refused` says; it is asked again only after a variable or the fixes have changed."""
        if not (asked := switches.restriction()):
            return None
        key = asked, frozenset(self.states)
        known, refusal = self._refusal
        if known != key:
            refusal = switches.refused(self._all_fixes())
            self._refusal = key, refusal
        return refusal

    def _with_target_in(self, module: str) -> list[FixState]:
        return [state for state in self.states.values() if module in state.fix.target_modules]

    # The steps of one fix

    @staticmethod
    def _check_switches(fix: Judgeable, engine: Engine) -> None:
        if switches.asked(fix) is False:
            raise Refused(OFF, f"{fix.switch}=0")
        if not engine.admits_us():
            messages.warn(
                engine.name, f"{engine.allow_list} leaves attnfix out: nothing is patched; add the word attnfix to it"
            )
            raise Refused(OFF, f"{engine.allow_list} leaves attnfix out")

    def _judge(self, state: FixState, sources: source_files.Sources) -> judge.Verdict:
        """The gate's verdict on the code as it lies here, which must not change while the fix is installed."""
        fix = state.fix
        stamp = loaded_code.stamp(fix, sources)
        known, verdict = self._verdicts.get(fix.id, (None, None))
        if verdict is None or known != stamp:
            again = judge.judge(fix, sources)
            if verdict is not None and (verdict.kind, verdict.code) != (again.kind, again.code):
                raise Refused(CONFLICT, loaded_code.CHANGED)
            verdict = again
            self._verdicts[fix.id] = stamp, verdict
        state.release, state.code = verdict.release, verdict.code
        return verdict

    @staticmethod
    def _check_affected(fix: Judgeable, verdict: judge.Verdict, refused: Callable[[], switches.Refusal | None]) -> None:
        if verdict.kind not in HEALTHY:
            if refusal := refused():
                raise Refused(OFF, refusal.reason)
            if why := switches.left_off(fix):
                raise Refused(OFF, why)
        if not verdict.affected:
            raise Refused(LEFT_ALONE[verdict.kind], verdict.reason)

    @staticmethod
    def _check_observable(state: FixState) -> None:
        why = state.fix.whole().unobservable if switches.observing() else None
        state.observable = why is None if switches.observing() else None
        if why:
            raise Refused(OFF, f"ATTNFIX=observe, and it is not observable: {why}")

    @staticmethod
    def _take_patch_points(
        state: FixState, verdict: judge.Verdict, sources: source_files.Sources, module: str, late: bool
    ) -> None:
        """A wrapper at each target in `module`; it passes every call through until the fix is armed."""
        fix = state.fix.whole()
        for target in fix.targets:
            code_path = home(target, verdict.present, sources)
            if code_path is None:
                if fix.independent:
                    continue
                raise LookupError(f"{target.name} has no place in this code")
            taken = state.patch_points.get(code_path)
            if code_path.module == module and not (taken and taken.stands):  # a reload brings the engine's own back
                state.patch_points[code_path] = take(target, code_path, state, late, sources)

    def _arm(self, state: FixState, verdict: judge.Verdict, sources: source_files.Sources) -> None:
        """The last target arms the fix, if everything still is what was judged."""
        fix = state.fix.whole()
        missing = [target.name for target in fix.targets if not any(p in state.patch_points for p in target.code_paths)]
        if missing and not (fix.independent and state.patch_points):
            raise Refused(PENDING, f"waiting for the module of {', '.join(missing)}")
        for code_path, point in state.patch_points.items():
            if not point.stands:
                raise Refused(CONFLICT, f"{code_path.qualname} was replaced by {standing_at(code_path)} after it was wrapped")
        witnesses.check_in_place(state.fix, verdict, sources)
        witnesses.check_globals(verdict, sources)
        state.recheck_on_first_call = partial(self._recheck, state, verdict, verdict.modules & sys.modules.keys())
        state.settle(OBSERVED if state.observable else INSTALLED, verdict.reason)

    def _recheck(self, state: FixState, verdict: judge.Verdict, then: Set[str]) -> None:
        """At the first call: another patcher may have come since, and a witness that was not among the modules `then` may come
        from a file that nobody has judged."""
        self._verify_in_place()
        if state.base not in _STANDS:
            return
        engine = ENGINES[state.fix.engine]
        sources = _sources(engine)
        try:
            witnesses.check_in_place(state.fix, verdict, sources)
        except Refused as refusal:
            self._lost(state, str(refusal))
            return
        if loaded_code.stamp(state.fix, sources) == self._verdicts[state.fix.id][0]:
            return
        if judge.judge(state.fix, sources).code == verdict.code:
            return  # touched, moved or linked from elsewhere
        if (verdict.modules & sys.modules.keys()) - then:
            state.settle(CONFLICT, loaded_code.CHANGED)
            state.changed()
        messages.warn(engine.name, loaded_code.CHANGED)

    @staticmethod
    def _withdraw(state: FixState) -> None:
        """Take everything off the engine that no other fix uses: a disarmed fix leaves it as it was."""
        for point in state.patch_points.values():
            with suppress(Exception):  # the others come off all the same
                point.withdraw()
        state.patch_points.clear()

    def _forked(self) -> None:
        """A forked child gets a record of its own; nothing is said again."""
        self._lock = threading.RLock()
        for state in self.states.values():
            state.fired = False
        self._recorder.forked()

    # STRICT

    def _required(self, state: FixState) -> bool:
        return state.base != OFF and switches.required(state.fix)

    def _requires_any(self, engine: Engine) -> bool:
        return any(switches.required(state.fix) for state in self.states.values() if state.fix.engine == engine.name)

    def _enforce_strict(self, module: str) -> None:
        engine = engine_of(module)
        if (refusal := self._refused()) and engine.admits_us() and self._requires_any(engine):
            messages.refuse(str(refusal))
        if unmet := self.unmet(engine):
            messages.end_process(unmet)

    def _watch_load(self, engine: Engine, module: str) -> None:
        """Under STRICT, look once more when the model is loaded: the last moment before the engine serves."""
        if not switches.strict():
            return

        def enforcing(wrapped: Any) -> Any:
            @wraps(wrapped)
            def enforce_and_load(*args: Any, **kwargs: Any) -> Any:
                try:
                    self.catch_up()  # with what was loaded past the import hook
                    self._enforce_strict(module)
                except Exception as error:  # the engine may catch it and serve
                    messages.refuse(f"a look at {module} failed: {type(error).__name__}: {error}")
                return wrapped(*args, **kwargs)

            return enforce_and_load

        for code_path in (code_path for code_path in engine.load_model if code_path.module == module):
            standing = live(code_path)
            if type(standing) is FunctionType and not hasattr(standing, "__wrapped__"):
                swap(code_path, enforcing(standing))


def _if_alive(activation: weakref.ref[Activation], step: Callable[[Activation], object]) -> None:
    """What is registered for a fork stays registered: it must not keep an activation that nobody has any more."""
    if (found := activation()) is not None:
        step(found)


def _sources(engine: Engine) -> source_files.Sources:
    """The engine's files as they are now. Raises RuntimeError before its package is imported."""
    root = loaded_root(engine)
    if root is None:
        raise RuntimeError(f"the package of {engine.name} is not in this process")
    return source_files.Sources(root, version_of(engine))


def watched_modules(fixes: Iterable[Judgeable]) -> set[str]:
    """Modules after which attnfix acts: those of targets; the engines' packages, whose import opens the process record; those
    that load the model, watched under STRICT."""
    loads = {code_path.module for engine in ENGINES.values() for code_path in engine.load_model}
    return loads.union(ENGINES, *(fix.target_modules for fix in fixes))
