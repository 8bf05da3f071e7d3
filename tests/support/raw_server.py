"""A server that sends whatever bytes it is told to, as slowly as it is told to."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

Answer = Callable[[str, str], bytes | Iterable[bytes]]


class Raw:
    """`with Raw(answer) as url`: `answer(method, path)` is all bytes of a reply, or parts of it."""

    def __init__(self, answer: Answer):
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.over = threading.Event()

    def __enter__(self) -> str:
        threading.Thread(target=self._accept, daemon=True).start()
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listening.accept()[0],), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            asked = b""
            while b"\r\n\r\n" not in asked:
                if not (part := connection.recv(65536)):
                    return
                asked += part
            head, _, body = asked.partition(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
            while len(body) < length:
                body += connection.recv(65536)
            method, path, *_ = head.decode().split()
            reply = self._answer(method, path)
            for part in (reply,) if isinstance(reply, bytes) else reply:
                connection.sendall(part)
                if self.over.is_set():
                    return


def page(body: Any, *headers: str, status: int = 200) -> bytes:
    """A reply with this body, made JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + data


def slowly(data: bytes, apart_s: float = 0.1) -> Iterable[bytes]:
    """A byte now and then, for ever."""
    yield data
    while True:
        time.sleep(apart_s)
        yield b"a"
