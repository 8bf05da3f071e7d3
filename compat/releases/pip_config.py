"""pip's own settings: where it looks for packages, and how it gets there.

Whoever made `pip install` work on this machine (a mirror, a proxy, a company certificate) has said all that we need.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

# Later wins. Fetching a release is a `pip download`, but people also write index settings under [install].
SECTIONS = ("global", "install", "download", ":env:")


@dataclass(frozen=True)
class PipSettings:
    """The settings that matter for reading an index; None or empty where pip says nothing."""

    index_url: str | None = None  # None: pip's default index
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    proxy: str | None = field(default=None, repr=False)
    cert: str | None = None
    client_cert: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout: float = 15.0  # seconds, pip's own default
    retries: int = 3
    # (netloc, user, password). Kept out of the URLs, which appear in error messages, and out of repr.
    credentials: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)


@cache
def read() -> PipSettings:
    """pip's settings, asked of pip once per process; of the PIP_* variables alone where pip is not importable."""
    return from_values(_listed_by_pip() or _from_environment(os.environ))


def from_values(values: dict[str, str]) -> PipSettings:
    """Settings from pip's option names and their text. An empty text counts as not set, as it does for pip."""
    credentials: dict[str, tuple[str, str]] = {}

    def url(text: str) -> str:
        if "://" not in text:  # pip takes a local folder for an index, too
            text = Path(text).expanduser().absolute().as_uri()
        parts = urlsplit(text)
        userinfo, _, netloc = parts.netloc.rpartition("@")
        if userinfo:
            user, _, password = userinfo.partition(":")
            credentials.setdefault(netloc, (unquote(user), unquote(password)))
        return urlunsplit(parts._replace(netloc=netloc))

    def path(name: str) -> str | None:
        return os.path.expanduser(values[name]) if values.get(name) else None

    index_url = url(values["index-url"]) if values.get("index-url") else None
    extra_index_urls = tuple(map(url, values.get("extra-index-url", "").split()))
    find_links = tuple(map(url, values.get("find-links", "").split()))
    return PipSettings(
        index_url=index_url,
        extra_index_urls=extra_index_urls,
        find_links=find_links,
        no_index=values.get("no-index", "").lower() in {"1", "true", "yes", "on", "y", "t"},
        proxy=values.get("proxy") or None,
        cert=path("cert"),
        client_cert=path("client-cert"),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        timeout=_number(values.get("timeout") or values.get("default-timeout"), PipSettings.timeout),
        retries=int(_number(values.get("retries"), PipSettings.retries)),
        credentials=tuple((netloc, *pair) for netloc, pair in credentials.items()),
    )


#: `python -m pip`, but for the working folder, which Python would put first on the path: what lies there is not run
_PIP = "import runpy, sys; sys.path[:] = filter(None, sys.path); runpy.run_module('pip', run_name='__main__', alter_sys=True)"


def _listed_by_pip() -> dict[str, str] | None:
    try:
        command = [sys.executable, "-c", _PIP, "config", "list"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # no pip here (uv makes such environments)
    by_section: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        key, _, text = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in by_section:
            try:
                by_section[section][option] = str(ast.literal_eval(text))
            except (ValueError, SyntaxError):
                continue
    values: dict[str, str] = {}
    for section in SECTIONS:
        values.update({option: text for option, text in by_section[section].items() if text})
    return values


def _from_environment(environ: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    return {name[4:].lower().replace("_", "-"): text for name, text in environ.items() if name.startswith("PIP_")}


def _number(text: str | None, default: float) -> float:
    try:
        return max(0.0, float(text)) if text else default
    except ValueError:
        return default
