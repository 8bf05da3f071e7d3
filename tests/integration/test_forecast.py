"""`attnfix forecast`, against the ledgers read as plain JSON and beside real installed releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from tests.integration.test_command_line import attnfix
from tests.support import environments

ROOT = Path(__file__).resolve().parents[2]
OFFLINE = {"HTTPS_PROXY": "http://127.0.0.1:9", "PIP_NO_INDEX": "1"}


def books(engine: str) -> dict[str, dict[str, str]]:
    """fix -> release -> verdict, from the file alone."""
    data = json.loads((ROOT / "patches" / engine / "index.json").read_text())
    return {
        name.removeprefix("fix "): {
            release: verdict for _, verdict, span in row["codes"] for release in spanned(data["releases"], span)
        }
        for name, row in data.items()
        if name.startswith("fix ")
    }


def spanned(releases: list[str], span: str) -> list[str]:
    ends = [part.split("-") for part in span.split(",")]
    return [release for first, *last in ends for release in releases[int(first) : int((last or [first])[0]) + 1]]


def forecast(*arguments, **environment):
    done = attnfix("forecast", *arguments, "--json", **OFFLINE, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "engine, origin, to",
    [
        ("sglang", "0.5.9", "0.5.23"),
        ("sglang", "0.5.10.post1", "0.5.9"),
        ("sglang", "0.5.9", "0.5.10"),
        ("vllm", "0.19.1", "0.25.1"),
        ("vllm", "0.10.0", "0.33.0"),
        ("vllm", "0.20.0", "0.20.0"),
    ],
)
def test_every_change_is_what_the_ledgers_say(engine, origin, to):
    data = forecast(f"{engine}=={to}", "--from", f"{engine}=={origin}")
    expected = {}
    for fix, verdicts in books(engine).items():
        before, after = (verdicts[release] == "affected" if release in verdicts else None for release in (origin, to))
        told = {(1, 0): "no longer needed", (1, 1): "still needed", (0, 1): "newly needed", (0, 0): "not needed"}
        expected[fix] = told.get((before, after), "unknown")
    assert {row["fix"]: row["change"] for row in data["fixes"]} == expected
    assert (data["from"], data["to"], data["from_installed"]) == (origin, to, False)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_first_release_that_needs_nothing(engine):
    known = books(engine)
    releases = sorted({release for verdicts in known.values() for release in verdicts}, key=Version)
    data = forecast(engine, "--from", f"{engine}=={releases[0]}")
    assert data["to"] == data["newest_known"] == releases[-1]
    last_needed = max((r for v in known.values() for r, verdict in v.items() if verdict == "affected"), key=Version)
    after = [release for release in releases if Version(release) > Version(last_needed)]
    assert data["nothing_needed_from"] == (after[0] if after else None)
    stuck = {fix for fix, verdicts in known.items() if verdicts[releases[-1]] == "affected"}
    assert set(data["in_the_way"]) == stuck and bool(stuck) is not bool(after)


def test_post_releases_sort_behind_their_release():
    text = attnfix("forecast", "sglang==0.5.12.post7", "--from", "sglang==0.5.9").stderr
    assert "sglang 0.5.12.post7 was never judged; nearest that was: 0.5.12.post1, newest: " in text
    assert "nearest that was: 0.5.9," in attnfix("forecast", "sglang==0.5.10rc1", "--from", "sglang==0.5.9").stderr
    assert "nearest that was: 0.10.0," in attnfix("forecast", "vllm==0.2", "--from", "vllm==0.20.0").stderr


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (["sglang==0.5.23"], 2, "no sglang is installed here; name the release you have"),
        (["sglang==99", "--from", "sglang==0.5.9"], 1, "sglang 99 was never judged; nearest that was: "),
        (["sglang", "--from", "sglang==99"], 1, "sglang 99 was never judged"),
        (["sglang", "--from", "vllm==0.20.0"], 2, "--from names vllm, but the forecast is for sglang"),
        (["sglang", "--from", "sglang"], 2, "name the release too"),
        (["sglnag==0.5.9"], 2, "did you mean sglang?"),
        (["sglang==latest"], 2, "'latest' is not a version number"),
    ],
)
def test_bad_input_gets_one_clear_sentence(arguments, code, says):
    done = attnfix("forecast", *arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode == code and line.startswith("attnfix: ") and says in line and not done.stdout


def test_the_table_fits_a_terminal_and_says_what_matters():
    done = attnfix("forecast", "vllm==0.33.0", "--from", "vllm==0.19.1+cu128")
    assert "no longer needed: vllm.skip-context-zero-fill (off by default), vllm.lse-log-base" in done.stdout
    assert "No published release yet needs no fix" in done.stdout and "in the way: vllm.gdn-uniform-decode" in done.stdout
    assert "No published release yet needs no fix" in attnfix("forecast", "sglang", "--from", "sglang==0.5.9").stdout


def test_the_default_origin_is_the_code_that_is_installed(engine_python):
    """Judged from the files, not from the version beside them: a release whose fault was mended by hand needs nothing."""
    environment = engine_python("sglang", "0.5.10.post1")

    def rows():
        done = environment.run("-m", "attnfix", "forecast", "sglang==0.5.23", "--json")
        data = json.loads(done.stdout)
        assert (data["from"], data["from_installed"]) == ("0.5.10.post1", True)
        return {row["fix"]: row for row in data["fixes"]}

    stock = rows()
    assert stock["sglang.zero-kv-rows"]["change"] == "no longer needed"
    judged = {fix: verdicts.get("0.5.10.post1", "unknown") for fix, verdicts in books("sglang").items()}
    assert {fix: row["from"] for fix, row in stock.items()} == judged
    # Examined from 0.5.15 and 0.5.13 on
    later = {"sglang.mamba2-prefill-graph", "sglang.draft-row-spill"}
    assert {fix for fix, verdict in judged.items() if verdict == "unknown"} == later
    path = environments.replaceable(environment, "sglang/srt/layers/attention/trtllm_mla_backend.py")
    text = path.read_text()
    path.write_text(text.replace("def forward_extend(", "def forward_extend(  # a comment\n        "))
    try:
        assert rows()["sglang.zero-kv-rows"]["from"] == "affected", "formatting makes no difference"
        path.write_text(text.replace("is_target_verify()", "is_target_verify_mended()"))
        mended = rows()["sglang.zero-kv-rows"]
        assert (mended["from"], mended["change"]) == ("unknown", "unknown")
    finally:
        path.write_text(text)
