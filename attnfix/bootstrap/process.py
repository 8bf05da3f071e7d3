"""The one activation of this process: what the import hook and the entry points of both engines lead to."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnfix.compat.arming.activation import Activation
    from attnfix.compat.fix import Judgeable

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
            from attnfix.compat.arming.activation import Activation
            from attnfix.compat.status import metrics

            metrics.catch_up()  # with what makes the page, imported before an engine was
            _activation = _activation or Activation(facts=_facts, every_fix=_every_fix)  # an import may have led here
        from attnfix.compat.engines import ENGINES
        from attnfix.compat.gate import module_lookup
        from attnfix.patches import indexed

        for engine in ENGINES:
            if (engine in engines or module_lookup.module(engine)) and not _activation.has_fixes_of(engine):
                fixes = indexed.of(engine)
                if not _activation.has_fixes_of(engine):  # nor has what was caught up with during that import added them
                    _activation.add(fixes)
        return _activation


def _every_fix() -> Iterator[Judgeable]:
    from attnfix.compat.engines import ENGINES
    from attnfix.patches import indexed

    for engine in ENGINES:
        yield from indexed.of(engine)


def module_loaded(name: str) -> None:
    """A module of `target_modules` has just been executed: called by the import hook."""
    from attnfix.compat.arming.switches import killed
    from attnfix.compat.engines import ENGINES

    engine = name.partition(".")[0]
    if engine in ENGINES:
        from attnfix.compat.arming import ray_workers

        ray_workers.module_loaded(name)  # under ATTNFIX=0, too: it has to reach them
        if not killed():
            found = activation(engine)
            found.catch_up()  # a module whose hook failed
            found.module_loaded(name)
    elif not killed():
        from attnfix.compat.status import metrics

        metrics.module_loaded(name)


def catch_up() -> None:
    """Install the fixes of what was imported before attnfix was active."""
    from attnfix.compat.arming import ray_workers
    from attnfix.compat.arming.switches import killed
    from attnfix.compat.status import metrics

    ray_workers.catch_up()
    if not killed():
        metrics.catch_up()
        activation().catch_up()


def _facts() -> dict[str, Any]:
    """Facts of the process record beside its fixes: its server, whether it observes, which path serves each op, the FlashInfer
    that is loaded."""
    from attnfix.compat.arming import switches
    from attnfix.compat.status import metrics

    kernels = sys.modules.get("attnfix.kernels")
    return {
        "server": metrics.server(),
        "observes": switches.observing(),
        "kernels": kernels.kernel_status() if kernels else {},
        "flashinfer": getattr(sys.modules.get("flashinfer"), "__version__", None),
    }
