"""pip's settings as attnfix reads them, and what they do to its requests."""

from __future__ import annotations

import base64
import os
import sys

import pytest

from attnfix.compat.releases import pip_config


@pytest.fixture
def unread(monkeypatch):
    """No settings in the environment, and none read yet."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    pip_config.read.cache_clear()
    yield
    pip_config.read.cache_clear()


def test_pip_settings():
    settings = pip_config.from_values(
        {
            "index-url": "https://me:p%40ss@one.example/simple",
            "extra-index-url": "https://two.example/simple\nfile:///three",
            "proxy": "http://proxy.example:3128",
            "cert": "~/ca.pem",
            "client-cert": "/client.pem",
            "trusted-host": "two.example",
            "default-timeout": "40",
            "timeout": "",
            "retries": "7",
            "no-index": "true",
        }
    )
    assert settings.index_url == "https://one.example/simple"
    assert settings.extra_index_urls == ("https://two.example/simple", "file:///three")
    assert settings.credentials == (("one.example", "me", "p@ss"),)
    assert settings.cert == os.path.expanduser("~/ca.pem") and settings.client_cert == "/client.pem"
    assert (settings.timeout, settings.retries, settings.no_index) == (40.0, 7, True)
    assert "p@ss" not in repr(settings) and "3128" not in repr(settings)


def test_pip_settings_reach_the_session(monkeypatch):
    from attnfix.compat.releases.pip_session import PipSession

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/environment.pem")
    settings = pip_config.from_values(
        {
            "index-url": "https://me:secret@one.example/simple",
            "proxy": "http://proxy.example:3128",
            "cert": "/pip.pem",
            "trusted-host": "two.example",
        }
    )
    session = PipSession(settings)
    merged = session.merge_environment_settings("https://one.example/simple", {}, False, None, None)
    assert merged["verify"] == "/pip.pem"
    assert merged["proxies"]["https"] == "http://proxy.example:3128"
    ours = session.prepare_request(session_request("https://one.example/files/x.whl"))
    assert base64.b64decode(ours.headers["Authorization"].split()[1]) == b"me:secret"
    assert "Authorization" not in session.prepare_request(session_request("https://elsewhere.example/x.whl")).headers
    assert type(session.get_adapter("https://two.example/x")) is not type(session.get_adapter("https://one.example/x"))


def session_request(url):
    import requests

    return requests.Request("GET", url)


def test_configuration_files_are_read(tmp_path, unread, monkeypatch):
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://a.example/simple\ntimeout = 3\n[install]\nindex-url = https://b.example\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_RETRIES", "0")
    settings = pip_config.read()
    assert (settings.index_url, settings.timeout, settings.retries) == ("https://b.example", 3.0, 0)


def test_variables_are_read_where_pip_is_missing(unread, monkeypatch):
    monkeypatch.setattr(sys, "executable", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "https://c.example/simple")
    assert pip_config.read().index_url == "https://c.example/simple"
