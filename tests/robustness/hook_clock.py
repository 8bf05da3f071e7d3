"""What attnfix itself takes while an engine's module is imported: run by `cost` beside a real release, in a fresh process.

The engine's own import takes seconds and varies by more than attnfix takes in all, so the clock runs inside the hook alone:
from a target module's body to the end of what is done about it, the import of attnfix included, and for every name that is
looked up and is no target's. A pass of the garbage collector over the engine's objects, which may fall into the hook (with vLLM
0.20.2 each time, for 0.3 s), would come without attnfix, too: it is taken off. Figures in ms of this thread's CPU time, and the
number of targets, go to standard output as JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import timeit
from time import thread_time
from types import ModuleType
from typing import Any

from attnfix.bootstrap import import_hook

NOBODYS = "nobodys_module"


class Clock:
    """In the place of the hook's loader: the time of its `exec_module` without that of the module's body."""

    def __init__(self) -> None:
        self.hook, self.targets, self.names = 0.0, 0, 0
        self.collected = self._collecting = 0.0
        gc.callbacks.append(self._collector)
        run, find = import_hook._Loader.exec_module, import_hook._Finder.find_spec
        clock = self

        def exec_module(self: Any, module: ModuleType) -> None:
            body = self.loader = Body(self.loader, clock)
            began = thread_time() - clock.collected
            run(self, module)
            clock.hook += thread_time() - clock.collected - began - body.took
            clock.targets += 1

        def find_spec(self: Any, *asked: Any) -> Any:
            clock.names += 1
            return find(self, *asked)

        import_hook._Loader.exec_module, import_hook._Finder.find_spec = exec_module, find_spec  # type: ignore[method-assign]
        self.one_name = min(timeit.repeat(lambda: find(finder(), NOBODYS), number=1000, repeat=5)) / 1000

    def _collector(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = thread_time()
        else:
            self.collected += thread_time() - self._collecting


class Body:
    """In the place of a module's own loader. Bodies import other target modules: what those take is their own clock's."""

    def __init__(self, loader: Any, clock: Clock):
        self.loader, self.clock, self.took = loader, clock, 0.0

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        began = thread_time() - self.clock.collected
        try:
            self.loader.exec_module(module)
        finally:
            self.took = thread_time() - self.clock.collected - began


def finder() -> Any:
    return next(one for one in sys.meta_path if type(one) is import_hook._Finder)


def main(engine: str, target: str) -> None:
    from attnfix.prove import stubs

    stubs.install(engine)
    clock = Clock()
    importlib.import_module(target)
    print(json.dumps({"hook": 1e3 * clock.hook, "names": 1e3 * clock.names * clock.one_name, "targets": clock.targets}))


if __name__ == "__main__":
    main(*sys.argv[1:])
