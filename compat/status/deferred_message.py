"""A line that waits until the engine itself has logged something: then its logging is set up, and its imports are over.

Target modules are imported in one chain, in sglang's children before the engine has configured any logging: a line said at
once would be lost there, and elsewhere there would be one for each module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable


def say_with_next(engine: str, say: Callable[[], None]) -> None:
    """Call `say` once, at the next record of the engine that anybody hears. Asked again before that, it waits once."""
    log = logging.getLogger(engine)
    if not any(isinstance(handler, _Listener) for handler in log.handlers):
        log.addHandler(_Listener(log, say))


class _Listener(logging.Handler):
    def __init__(self, log: logging.Logger, say: Callable[[], None]):
        super().__init__()
        self._log, self._say = log, say

    def handle(self, record: logging.LogRecord) -> bool:
        if self._heard():
            # A new list: the logger is walking through the old one
            self._log.handlers = [handler for handler in self._log.handlers if handler is not self]
            self._say()
        elif logging.lastResort and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)  # which the logger would have taken if we were not here
        return True

    def _heard(self) -> bool:
        log: logging.Logger | None = self._log
        while log:
            if any(handler is not self for handler in log.handlers):
                return True
            log = log.parent if log.propagate else None
        return False
