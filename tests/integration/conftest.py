"""What several files of these tests share."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.metrics_pages import exposition


@pytest.fixture
def replica(monkeypatch):
    """`replica(*processes)`: host and port of a page; a text is served as it is, a number is an HTTP error."""
    with contextlib.ExitStack() as stack:

        def serve(*processes):
            special = processes[0] if processes and not isinstance(processes[0], dict) else None
            page = special if isinstance(special, str) else exposition(monkeypatch, *(() if special else processes))

            class Page(BaseHTTPRequestHandler):
                def do_GET(self):
                    code = special if isinstance(special, int) else 200 if self.path == "/metrics" else 404
                    self.send_response(code)
                    self.end_headers()
                    self.wfile.write(page.encode())

                def log_message(self, *_):
                    pass

            server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            return f"127.0.0.1:{server.server_port}"

        yield serve
