"""requests, set up as pip is: proxy, certificates, credentials, trusted hosts, timeout, retries, `file://` URLs.

Imported on demand: requests comes with the extra `attnfix[cpu]`.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3 import HTTPResponse
from urllib3.exceptions import InsecureRequestWarning
from urllib3.util import Retry

from .. import untrusted
from .errors import ReleaseError
from .pip_config import PipSettings


class PipSession(requests.Session):
    """requests, set up like pip."""

    def __init__(self, settings: PipSettings) -> None:
        super().__init__()
        self._settings = settings
        self.headers["User-Agent"] = "attnfix"
        self.cert = settings.client_cert
        if settings.credentials:
            self.auth = _Credentials(settings)
        retry = Retry(settings.retries, backoff_factor=0.25, status_forcelist=(500, 502, 503, 504))
        retry.raise_on_status = False
        self.mount("http://", HTTPAdapter(max_retries=retry))
        self.mount("https://", HTTPAdapter(max_retries=retry))
        self.mount("file://", _LocalFiles())
        for host in settings.trusted_hosts:
            for end in ("/",) if ":" in host else ("/", ":"):
                self.mount(f"https://{host.lower()}{end}", _Trusting(max_retries=retry))

    def merge_environment_settings(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        settings = super().merge_environment_settings(*args, **kwargs)
        # pip's settings win over the environment's; requests would have it the other way round.
        if self._settings.cert:
            settings["verify"] = self._settings.cert
        if self._settings.proxy:
            settings["proxies"] = dict.fromkeys(("http", "https"), self._settings.proxy)
        return settings

    def send(self, request: PreparedRequest, **kwargs: Any) -> Response:
        kwargs["timeout"] = kwargs.get("timeout") or self._settings.timeout or None
        return super().send(request, **kwargs)


class _Credentials(AuthBase):
    """User and password of an index, for its own host only; elsewhere what ~/.netrc says."""

    def __init__(self, settings: PipSettings) -> None:
        self._known = {netloc: (user, password) for netloc, user, password in settings.credentials}

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        url = request.url or ""
        known = self._known.get(urlsplit(url).netloc) or requests.utils.get_netrc_auth(url)
        return HTTPBasicAuth(*known)(request) if known else request


class _Trusting(HTTPAdapter):
    """For hosts under pip's `trusted-host`: certificates are not checked."""

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InsecureRequestWarning)
            return super().send(request, *args, **{**kwargs, "verify": False})


class _LocalFiles(HTTPAdapter):
    """`file://` indexes and archives, ranges included."""

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        path = Path(url2pathname(urlsplit(request.url or "").path))
        path = path / "index.html" if path.is_dir() else path
        try:
            with untrusted.opened(path, follow=True) as descriptor:
                body: io.IOBase = open(os.dup(descriptor), "rb")  # noqa: SIM115  # the response closes it
        except OSError:
            return self.build_response(request, HTTPResponse(io.BytesIO(), status=404, preload_content=False))
        status, length = 200, path.stat().st_size
        headers = {"Content-Type": "text/html"}
        asked = str(request.headers.get("Range", ""))
        if asked:
            start, stop = map(int, asked.removeprefix("bytes=").split("-"))
            with body:
                body.seek(start)
                body, status = io.BytesIO(body.read(stop + 1 - start)), 206
            headers["Content-Range"] = f"bytes {start}-{stop}/{length}"
            length = len(body.getbuffer())
        headers["Content-Length"] = str(length)
        return self.build_response(request, HTTPResponse(body, headers, status, preload_content=False))


@contextmanager
def network(url: str, settings: PipSettings) -> Iterator[None]:
    """What can go wrong on the way to an index, in a sentence; URLs hold no credentials here."""
    index = f"the package index at {host_of(url)}"
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise ReleaseError(
            f"The certificate of {index} is not trusted here: name your authority's file in pip's `cert` setting."
        ) from error
    except requests.exceptions.ProxyError as error:
        raise ReleaseError(f"The proxy does not let us reach {index}.") from error
    except requests.exceptions.Timeout as error:
        raise ReleaseError(f"No answer from {index} within {settings.timeout:g} s.") from error
    except requests.exceptions.HTTPError as error:
        status = error.response.status_code if error.response is not None else "error"
        raise ReleaseError(f"HTTP {status} from {index}.") from error
    except requests.exceptions.RequestException as error:
        raise ReleaseError(f"Cannot reach {index}: is there a network?") from error
    except OSError as error:  # requests' word for a certificate file that is not there
        raise ReleaseError(f"Cannot open a connection to {index}: {error}") from error


def host_of(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path
