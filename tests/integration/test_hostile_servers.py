"""`attnfix probe` and `attnfix status --metrics` at servers that answer slowly, without end, or with what is no answer.

Exit code 1 of `probe` says that a server is broken: whatever cannot be read is 2, in one sentence.
"""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import resource
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnfix import cli
from attnfix.cli import fleet, probe
from attnfix.probe import client
from tests.support.probe_server import Behaviour, Listening, Protocol
from tests.support.raw_server import Raw, page, slowly

ENGINES = "vllm", "sglang"
HEAD = b"HTTP/1.1 200 OK\r\n"
SLOW = {
    "head": HEAD + b"X-Slow: ",
    "heads": b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"X: ",
    "body": HEAD + b"Content-Length: 100000\r\n\r\n",
    "chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n",
    "to the end of the connection": HEAD + b"\r\n",
}


@pytest.fixture
def quick(monkeypatch):
    """Times of a second, where they are minutes."""
    connect = client.connect
    monkeypatch.setattr(client, "connect", lambda url, key=None: connect(url, key, timeout_s=1))
    monkeypatch.setattr(client, "_GRACE_S", 0.4)
    monkeypatch.setattr(fleet, "_TIMEOUT_S", 1)


def asked(capsys, *words):
    """Exit code, and what was said on both streams; one sentence where it is 2."""
    begin = time.monotonic()
    code = cli.main(["probe", *words, "--prompts", "5", "--length", "60", "--relation", "again"])
    said = capsys.readouterr()
    assert "Traceback" not in said.err and "unexpected" not in said.err
    return code, said.out + said.err, time.monotonic() - begin


class Changed(Protocol):
    """A server of ours; `change(path, JSON)` makes other bytes of what it would have said, or None."""

    def __init__(self, engine, change):
        super().__init__(Behaviour(engine, noise=0.02), 0.001)
        self._change = change

    def handle(self, method, path, body, key=""):
        status, found = super().handle(method, path, body, key)
        made = self._change(path, copy.deepcopy(found)) if status == 200 else None
        return status, found if made is None else made


# Time


@pytest.mark.parametrize("where", SLOW)
def test_a_probe_waits_for_no_server_that_sends_a_byte_now_and_then(quick, capsys, where):
    with Raw(lambda method, path: slowly(SLOW[where])) as url:
        code, said, took = asked(capsys, url)
    assert code == 2 and "no whole answer within 1 s" in said and took < 8, said


@pytest.mark.parametrize("where", SLOW)
def test_nor_does_a_look_at_many_replicas(quick, capsys, where):
    with Raw(lambda method, path: slowly(SLOW[where])) as url:
        begin = time.monotonic()
        assert cli.main(["status", "--metrics", url, "--json"]) == 1
    (replica,) = json.loads(capsys.readouterr().out)["replicas"]
    assert "no whole page within" in replica["error"] and time.monotonic() - begin < 8


def test_an_answer_that_comes_too_slowly_is_unclear(quick, capsys):
    """The server lives: its other pages come."""
    pages = {"/version": {"version": "0.33.0"}, "/v1/models": {"data": [{"id": "toy", "max_model_len": 8192}]}}

    def answer(method, path):
        return slowly(SLOW["body"]) if path == "/v1/completions" else page(pages.get(path, b""), status=200)

    with Raw(answer) as url:
        code, said, took = asked(capsys, url)
    assert code == 2 and "no whole answer" in said and took < 20, said


# Size


def endless():
    yield HEAD + b"\r\n"
    yield from itertools.repeat(b" " * (1 << 20))


BOMB = gzip.compress(b" " * (1 << 28))


@pytest.fixture
def little_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000, "KiB"


@pytest.mark.parametrize("path", ["/version", "/v1/models", "/metrics", "/tokenize", "/v1/completions"])
@pytest.mark.parametrize("kind, says", [("endless", "larger than 32 MiB"), ("bomb", "compressed")])
def test_a_probe_reads_no_answer_without_end(quick, little_memory, capsys, kind, says, path):
    pages = {"/version": {"version": "0.33.0"}, "/v1/models": {"data": [{"id": "toy", "max_model_len": 8192}]}}

    def answer(method, asked_for):
        if asked_for == path:
            return endless() if kind == "endless" else page(BOMB, "Content-Encoding: gzip")
        return page(pages.get(asked_for, b""))

    with Raw(answer) as url:
        code, said, _ = asked(capsys, url)
    assert code == 2 and says in said, said


@pytest.mark.parametrize("kind, says", [("endless", "larger than"), ("bomb", "compressed"), ("many", "lines of attnfix")])
def test_nor_does_a_look_at_many_replicas_read_one(quick, little_memory, capsys, kind, says):
    line = 'attnfix_fix_info{{fix="f{0}",engine="vllm",state="failed",release="1",attnfix="1"}} 1\n'
    made = {
        "endless": endless,
        "bomb": lambda: page(BOMB, "Content-Encoding: gzip"),
        "many": lambda: page("".join(map(line.format, range(100_000))).encode()),
    }[kind]
    with Raw(lambda method, path: made()) as url:
        assert cli.main(["status", "--metrics", url]) == 1
    said = capsys.readouterr().out
    assert says in said and len(said) < 3000, said[:3000]


@pytest.mark.parametrize(
    "text", ["a" * (1 << 22), "vllm:x{" + "a" * (1 << 22) + "} 1", "attnfix_fix_info{" + "a" * (1 << 22) + "} 1"]
)
def test_a_long_line_of_a_page_is_read_once(text):
    begin = time.monotonic()
    client.samples(text)
    fleet._read("http://replica/metrics", text)
    assert time.monotonic() - begin < 5


# Form


ONE = b'{"choices":[{"logprobs":{"tokens":["token_id:5"],"top_logprobs":[{"token_id:5":%s}]}}]}'
DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "engine, path, made",
    [
        ("vllm", "/v1/models", b'{"data":[1]}'), ("vllm", "/v1/models", b'{"data":{"a":1}}'),
        ("vllm", "/v1/models", b'{"data":[{"id":5}]}'), ("vllm", "/v1/models", b'{"data":"x"}'),
        ("vllm", "/version", b'{"version":[]}'), ("vllm", "/version", b'{"version":"\\ud800"}'), ("vllm", "/version", DEEP),
        ("vllm", "/version", b'{"version":' + DEEP), ("vllm", "/version", b"[1]"), ("vllm", "/version", b"\xff\xfe"),
        ("vllm", "/tokenize", b'{"tokens":"abc"}'), ("vllm", "/tokenize", b'{"tokens":[-1]}'),
        ("vllm", "/tokenize", b'{"tokens":[1e999]}'), ("vllm", "/tokenize", b'{"tokens":[99999999999]}'),
        ("vllm", "/tokenize", b'{"tokens":5}'), ("vllm", "/tokenize", b'{"tokens":[[]]}'),
        ("vllm", "/v1/completions", b"[]"), ("vllm", "/v1/completions", b"{}"), ("vllm", "/v1/completions", b"null"),
        ("vllm", "/v1/completions", DEEP), ("vllm", "/v1/completions", b'{"choices":[]}'),
        ("vllm", "/v1/completions", ONE % b"1e308"),
        ("vllm", "/v1/completions", ONE % b'"x"'),
        ("vllm", "/v1/completions", b'{"choices":[{"logprobs":{"tokens":["x"],"top_logprobs":[{}]}}],"usage":[]}'),
        ("vllm", "/v1/completions", b'{"choices":[{"logprobs":{"tokens":[],"top_logprobs":[{}]}}]}'),
        ("sglang", "/get_server_info", b'{"version":5}'),
        ("sglang", "/get_server_info", b'{"internal_states":[1],"version":"1"}'),
        ("sglang", "/get_server_info", b'{"internal_states":{"a":1},"version":"1"}'),
        ("sglang", "/get_model_info", b'{"model_path":[1]}'),
        ("sglang", "/generate", b"[]"), ("sglang", "/generate", b'"x"'), ("sglang", "/generate", b'{"meta_info":null}'),
        ("sglang", "/generate", b'{"meta_info":{"output_top_logprobs":[[[NaN,-5]]],"output_token_logprobs":[[0,-5]]}}'),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_one_sentence(quick, capsys, engine, path, made):
    with Listening(Changed(engine, lambda asked_for, _: made if asked_for == path else None)) as url:
        code, said, _ = asked(capsys, url)
    assert code == 2 and (said.count("\n") == 1 or "unclear" in said), said


@pytest.mark.parametrize(
    "made",
    [
        b"", b"HTTP/1.1", b"HTTP/1.1 200\r\n\r\n", b"\0" * 99, b"HTTP/1.1 99999 X\r\n\r\n", HEAD + b"Content-Length: x\r\n\r\n",
        HEAD + b"Content-Length: 5\r\n\r\nab", b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n", HEAD + b"X" * 99999,
        b"HTTP/1.1 200 " + b"\x1b[2J" * 50_000,
    ],
)  # fmt: skip
def test_what_is_no_http_is_one_sentence(quick, capsys, made):
    with Raw(lambda method, path: made) as url:
        code, said, _ = asked(capsys, url)
        assert code == 2 and said.count("\n") == 1 and len(said) < 600 and "\x1b" not in said, said
        assert cli.main(["status", "--metrics", url]) in (1, 3)
    assert len(said := capsys.readouterr().out) < 3000 and "\x1b" not in said


@pytest.mark.parametrize("words", [["http://["], ["http://a:b"], ["http://a", "--key", "a\nb"], ["http://a", "--key", "ä"]])
def test_an_address_or_a_key_that_is_none(quick, capsys, words):
    code, said, _ = asked(capsys, *words)
    assert code == 2 and said.count("\n") == 1 and "Bearer" not in said, said


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800") | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def spots(found, at=()):
    """Where something stands in a JSON, outside in."""
    yield at
    for key, value in found.items() if isinstance(found, dict) else enumerate(found[:3]) if isinstance(found, list) else ():
        yield from spots(value, (*at, key))


def put(found, at, value):
    if not at:
        return value
    inner = found
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return found


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_stands_in_a_reply_no_server_is_called_broken_for_it(engine, data, capsys):
    """Each path of the protocol in turn, each place in its JSON: another value."""
    paths = {"vllm": ("/version", "/v1/models", "/tokenize", "/v1/completions"),
             "sglang": ("/get_server_info", "/get_model_info", "/tokenize", "/generate")}[engine]  # fmt: skip
    path, value, place = data.draw(st.sampled_from(paths)), data.draw(VALUES), data.draw(st.integers(0, 99))
    chosen = {}

    def change(asked_for, found):
        if asked_for == path and isinstance(found, dict | list):
            places = sorted(spots(found), key=repr)
            where = chosen.setdefault("at", places[place % len(places)])
            try:
                return json.dumps(put(found, where, value)).encode()
            except (KeyError, IndexError, TypeError):
                return None
        return None

    with Listening(Changed(engine, change)) as url:
        code, said, _ = asked(capsys, url, "--json", "--budget", "4000,2")
    harmless = value is None or (isinstance(value, float | int) and path in ("/v1/completions", "/generate"))
    assert code in ((0, 1, 2) if harmless else (0, 2)), (path, chosen, value, said)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["tp_size", "attention_backend", "page_size", "kv_cache_dtype", "enable_dp_attention",
                                        "chunked_prefill_size", "speculative_algorithm", "model_path"]),
                       st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)))  # fmt: skip
def test_whatever_a_server_says_of_itself_suspects_are_found(flags):
    for engine, release in (("sglang", "0.5.9"), ("vllm", "0.25.1")):
        probe._suspects(client.Facts(engine, release, "model", flags, complete=True), None, None)
