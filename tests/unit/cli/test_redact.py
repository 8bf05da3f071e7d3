"""What a bug report must not hold: paths outside the environment, the home folder, source lines of other files."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from attnfix.cli.redact import Scrub

SITE = sysconfig.get_path("purelib")
STDLIB = sysconfig.get_path("stdlib")


@pytest.fixture
def scrub(monkeypatch):
    monkeypatch.setenv("HOME", "/home/jo doe")
    return Scrub({"vllm": Path("/image/engines/vllm")})


@pytest.mark.parametrize(
    "text, left",
    [
        (f"{SITE}/torch/x.py", "<site>/torch/x.py"),
        (f"{STDLIB}/json/decoder.py", "<python>/json/decoder.py"),
        ("/image/engines/vllm/v1/a.py", "<site>/vllm/v1/a.py"),
        ("/image/engines/vllm", "<site>/vllm"),
        ("/image/engines/vllm-mine/a.py", "<elsewhere>"),
        (f"{SITE}-mine/a.py", "<elsewhere>"),
        ("vllm.x was loaded from /srv/secret/x.py, not from /image/engines/vllm/x.py",
         "vllm.x was loaded from <elsewhere>, not from <site>/vllm/x.py"),
        ("cannot open '/srv/my secret/x.py': no such file", "cannot open '<elsewhere>': no such file"),
        ("/home/jo doe/secret/x.py:12", "<elsewhere>"),
        ("in /home/jo doe", "in <elsewhere>"),
        ("wheel=/secret/a;b", "wheel=<elsewhere>;b"),
        ("calls/corrections/rows: 80/80/1, and/or, https://github.com/a/b, 1 / 2", None),
        ("sglang.srt.layers:A.f, files of 0.5.9", None),
    ],
)  # fmt: skip
def test_texts(scrub, text, left):
    assert scrub(text) == (text if left is None else left)


def test_a_frame_of_a_file_that_is_not_shown_keeps_no_source_line(scrub):
    trace = (
        "Traceback (most recent call last):\n"
        f'  File "{SITE}/attnfix/compat/activation.py", line 3, in _try_step\n'
        "    step()\n"
        '  File "/srv/secret folder/mine.py", line 7, in run\n'
        '    call(token="secret")\n'
        "         ^^^^^^^^^^^^^^\n"
        '  File "/image/engines/vllm/a.py", line 9, in f\n'
        "    return 1\n"
        "ValueError: boom\n"
    )
    left = scrub(trace)
    assert "secret" not in left
    assert all(kept in left for kept in ("    step()\n", "    return 1\n", "line 7, in run\n", "ValueError: boom\n"))


def test_every_value_of_a_bundle_is_seen(scrub):
    value = {"a": ["/srv/secret", {"/srv/secret": ("/srv/secret", 1, None, True)}]}
    assert scrub(value) == {"a": ["<elsewhere>", {"<elsewhere>": ["<elsewhere>", 1, None, True]}]}


def test_the_real_home_is_known_whatever_the_environment_says(monkeypatch):
    import pwd

    monkeypatch.setenv("HOME", "/elsewhere")
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert Scrub({})(f"{home}/my model/x and {home}") == "<elsewhere> model/x and <elsewhere>"
