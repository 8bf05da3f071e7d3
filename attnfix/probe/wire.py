"""Requests to one server, of which nothing is believed: each answer has a time and a size, and is read as it comes."""

from __future__ import annotations

import json
import ssl
from typing import Any, NamedTuple

import httpx

from attnfix.compat import untrusted

from .answers import ProbeError, Refused
from .deadline import Deadline

_LIMIT = 32 << 20  # bytes of an answer
_SENTENCE = 200  # letters of what a server says


class Reply(NamedTuple):
    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Raises ValueError for what is no JSON, is nested too deep, or holds letters that cannot be sent back."""
        found = untrusted.parsed(self.body)
        if b"\\u" in self.body:
            json.dumps(found, ensure_ascii=False).encode()
        return found


class Wire:
    """The address of a server. Raises ProbeError where it is none.

    `get` and `post` raise httpx.TransportError where no answer comes, and Refused where it is one that nobody can read.
    """

    def __init__(self, url: str, key: str | None, timeout_s: float, transport: httpx.BaseTransport | None = None):
        self._timeout_s = timeout_s
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=0)  # a server that closes idle ones looks dead
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        try:
            self._http = httpx.Client(  # straight to the server: a proxy may hand each question to another one
                base_url=url, headers=headers, verify=ssl.create_default_context(), timeout=timeout_s, transport=transport,
                limits=limits, trust_env=False,
            )  # fmt: skip
        except (httpx.InvalidURL, ValueError) as error:
            raise ProbeError(f"{url} is no address: {brief(error)}") from error

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, seconds: float | None = None) -> Reply:
        return self._send("GET", path, seconds or self._timeout_s)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
        """Twice the time: the server may take it before its first byte."""
        return self._send("POST", path, 2 * self._timeout_s, json=body, headers=headers)

    def _send(self, method: str, path: str, seconds: float, **what: Any) -> Reply:
        with Deadline(seconds) as deadline:

            def seen(event: str, told: dict[str, Any]) -> None:
                if event == "connection.connect_tcp.complete":
                    deadline.watch(told["return_value"].get_extra_info("socket"))

            timeout = min(seconds, self._timeout_s)
            try:
                with self._http.stream(method, path, timeout=timeout, extensions={"trace": seen}, **what) as response:
                    reply = Reply(response.status_code, _body(response))
            except httpx.TransportError as error:
                if not deadline.over:
                    raise
                raise httpx.ReadTimeout(f"no whole answer within {seconds:g} s") from error
            if deadline.over:  # what has no length of its own seems whole
                raise httpx.ReadTimeout(f"no whole answer within {seconds:g} s")
            return reply


def _body(response: httpx.Response) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":  # it may unfold to any size
        raise Refused("its answer is compressed, though none was asked for")
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        if (size := size + len(part)) > _LIMIT:
            raise Refused(f"its answer is larger than {_LIMIT >> 20} MiB")
    return b"".join(parts)


def brief(error: object) -> str:
    """What an error says, of which a server may have written most."""
    return str(error)[:_SENTENCE] or type(error).__name__
