"""The doors: entry points of both engines and the import hook, all into one idempotent activation."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import _autoload

if TYPE_CHECKING:
    from attnfix.compat.activation import Activation

_lock = threading.RLock()
# A fork waits until another thread is done here: its child would wait for that thread for ever
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_activation: Activation | None = None


def activation() -> Activation:
    """The one activation of this process, over every fix of the catalogue."""
    global _activation
    with _lock:  # two target modules may finish in two threads: each must see the other's
        if _activation is None:
            from attnfix.compat import own_imports

            own_imports.bring()
            from attnfix.compat.activation import Activation
            from attnfix.patches.catalogue import FIXES

            _activation = Activation(FIXES, facts=_facts)
        return _activation


def module_loaded(name: str) -> None:
    """A module of `_targets` has just been executed: called by the import hook."""
    from attnfix.compat.engines import ENGINES
    from attnfix.compat.switches import killed

    if name.partition(".")[0] in ENGINES:
        from attnfix.compat import ray_workers

        ray_workers.module_loaded(name)  # under ATTNFIX=0, too: it has to reach them
        if not killed():
            activation().catch_up()  # a module whose hook failed
            activation().module_loaded(name)
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
