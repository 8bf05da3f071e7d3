"""Time for a whole answer. A socket's timeout begins anew with each byte: a server that sends one now and then would hold its
client for ever."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Deadline:
    """`with Deadline(10) as deadline: deadline.watch(connection)`: the connection ends when the time is over, as if its other
    side had ended it. `over`: whether it has."""

    def __init__(self, seconds: float):
        self.over = False
        self._twins: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def watch(self, connection: socket.socket) -> None:
        """By a twin of it: TLS takes the connection itself into another object."""
        self._twins.append(connection.dup())
        if self.over:
            self._end()

    def _end(self) -> None:
        self.over = True
        for twin in self._twins:
            with suppress(OSError):
                twin.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for twin in self._twins:
            twin.close()
