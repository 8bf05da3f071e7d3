"""The doors: entry points of both engines and the import hook, all into one idempotent activation."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _autoload

if TYPE_CHECKING:
    from attnfix.compat.activation import Activation
    from attnfix.compat.fix import Fix

_lock = threading.RLock()
# A fork waits until another thread is done here: its child would wait for that thread for ever
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_activation: Activation | None = None


def activation(*engines: str) -> Activation:
    """The one activation of this process, over the fixes of `engines` and of every engine that was imported here.

    A process seldom has both, and the import of an engine's fixes is most of what attnfix takes.
    """
    global _activation
    with _lock:  # two target modules may finish in two threads: each must see the other's
        if _activation is None:
            from attnfix.compat.activation import Activation

            _activation = Activation(facts=_facts, every_fix=_every_fix)
        from attnfix.compat import loaded
        from attnfix.compat.engines import ENGINES

        for engine in ENGINES:
            if (engine in engines or loaded.module(engine)) and not _activation.has_fixes_of(engine):
                _activation.add(import_module(f"attnfix.patches.{engine}.catalogue").FIXES)
        return _activation


def _every_fix() -> Iterator[Fix]:
    """Imports the catalogue of both engines when the first is asked for."""
    from attnfix.patches.catalogue import FIXES

    yield from FIXES


def module_loaded(name: str) -> None:
    """A module of `_targets` has just been executed: called by the import hook."""
    from attnfix.compat.engines import ENGINES
    from attnfix.compat.switches import killed

    engine = name.partition(".")[0]
    if engine in ENGINES:
        from attnfix.compat import ray_workers

        ray_workers.module_loaded(name)  # under ATTNFIX=0, too: it has to reach them
        if not killed():
            found = activation(engine)
            found.catch_up()  # a module whose hook failed
            found.module_loaded(name)
    elif not killed():
        from attnfix.compat import metrics  # alone: the program need be no engine

        metrics.module_loaded(name)


def activate() -> None:
    """Entry point of both engines: install the import hook, catch up with the modules that are loaded already.

    Lets no exception out: vLLM calls plugins unguarded.
    """
    try:
        from attnfix.compat import metrics, ray_workers
        from attnfix.compat.switches import killed

        _autoload.install()
        ray_workers.catch_up()
        if not killed():
            metrics.catch_up()
            activation().catch_up()
    except Exception as error:
        _autoload.broken("this process", error)


def _facts() -> dict[str, Any]:
    """What the process record says beside the fixes: its server, which path serves each op, the FlashInfer that is loaded."""
    from attnfix.compat import metrics

    kernels = sys.modules.get("attnfix.kernels")
    return {
        "server": metrics.server(),
        "kernels": kernels.kernel_status() if kernels else {},
        "flashinfer": getattr(sys.modules.get("flashinfer"), "__version__", None),
    }
