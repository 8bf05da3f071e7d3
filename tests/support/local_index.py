"""A package index on the loopback, and the small wheels and source archives that it offers."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import re
import tarfile
import threading
import zipfile

FILES = {
    "__init__.py": b"__version__ = '1.0'\n",
    "srt/layers/attention.py": b"def forward():\n    return 1\n",
    "srt/configs/small.json": b"{}\n",
    "_C.abi3.so": b"\x7fELF compiled",
    "lib/libx.so.12": b"\x7fELF compiled",
}


class Server:
    """A simple index (PEP 503) with range requests that counts, and that can be told to misbehave."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.sent: dict[str, int] = {}
        self.down = self.no_ranges = self.no_head = self.as_json = False
        self.cut = 0  # bodies of files to break off halfway
        self.together: threading.Barrier | None = None  # downloads that wait for each other
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(405, b"") if outer.no_head else self.do_GET()

            def do_GET(self):
                outer.requests.append((self.command, self.path, self.headers.get("Range")))
                if outer.down:
                    return self.answer(500, b"")
                parts = self.path.strip("/").split("/")
                if parts[0] == "simple":
                    return self.page(parts[1])
                body = outer.files[parts[1]]
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                if asked and not outer.no_ranges:
                    start, stop = int(asked[1]), int(asked[2]) + 1
                    return self.answer(206, body[start:stop], name=parts[1], span=f"bytes {start}-{stop - 1}/{len(body)}")
                if self.command == "GET" and outer.together:
                    outer.together.wait(30)
                self.answer(200, body, name=parts[1])

            def page(self, project):
                names = [name for name in outer.files if name.startswith(f"{project}-")]
                if not names:
                    return self.answer(404, b"")
                if outer.as_json:
                    files = [
                        {"filename": name, "url": f"/files/{name}", "hashes": {"sha256": outer.digests[name]},
                         "size": len(outer.files[name]), "upload-time": "2026-01-01T00:00:00Z"}
                        for name in names
                    ]  # fmt: skip
                    text = {"meta": {"api-version": "1.1"}, "name": project, "files": files, "versions": []}
                    return self.answer(200, json.dumps(text).encode(), kind="application/vnd.pypi.simple.v1+json")
                links = (f'<a href="/files/{name}#sha256={outer.digests[name]}">{name}</a>' for name in names)
                self.answer(200, f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode(), kind="text/html")

            def answer(self, status, body, name=None, kind="application/octet-stream", span=None):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", kind)
                if span:
                    self.send_header("Content-Range", span)
                self.end_headers()
                if self.command == "HEAD":
                    return
                if name and outer.cut:
                    outer.cut -= 1
                    body, self.close_connection = body[: len(body) // 2], True
                if name:
                    outer.sent[name] = outer.sent.get(name, 0) + len(body)
                try:
                    self.wfile.write(body)
                except OSError:  # the client has seen enough
                    self.close_connection = True

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/simple/"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def add(self, name: str, body: bytes, sha256: str | None = None) -> None:
        self.files[name], self.digests[name] = body, sha256 or hashlib.sha256(body).hexdigest()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def wheel(engine="sglang", release="1.0", files=FILES, record=None, extra=None, padding=0) -> bytes:
    """`record`: other contents for RECORD only (None: the file is not in it); `extra`: more entries, by full path."""
    info = f"{engine}-{release}.dist-info"
    entries = {f"{engine}/{name}": data for name, data in files.items()}
    if padding:  # a compiled library in the midst, much larger than all else
        entries[f"{engine}/a_large.so"] = os.urandom(padding)
    entries |= extra or {}
    entries[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {engine}\nVersion: {release}\n".encode()
    entries[f"{info}/entry_points.txt"] = b"[console_scripts]\nx = y:z\n"
    rows = []
    for name, data in (entries | (record or {})).items():
        if data is None:
            continue
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    entries[f"{info}/RECORD"] = "".join(rows).encode()
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return body.getvalue()


def sdist(engine="vllm", release="1.0", prefix="", extra=None) -> bytes:
    top = f"{engine}-{release}"
    entries = {f"{top}/{prefix}{engine}/{name}": data for name, data in FILES.items()}
    entries[f"{top}/tests/{prefix}{engine}/__init__.py"] = b"raise SystemExit\n"
    entries[f"{top}/setup.py"] = b"raise SystemExit\n"
    entries[f"{top}/PKG-INFO"] = f"Metadata-Version: 2.1\nName: {engine}\nVersion: {release}\n".encode()
    entries[f"{top}/{engine}.egg-info/entry_points.txt"] = b"[console_scripts]\nx = y:z\n"
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        for name, data in (entries | (extra or {})).items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return body.getvalue()
