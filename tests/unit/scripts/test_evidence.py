"""docs/evidence: summaries are short and made of the raw records; the archive is equal to the byte for equal records."""

from __future__ import annotations

import json

import pytest

from scripts.evidence import __main__ as evidence
from scripts.evidence import archive, summaries
from scripts.pages import gpu_runs
from tests.differential.launches import Kept, read, write

PATHS = sorted(summaries.RUNS.glob("*.json"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_summary_has_what_a_reader_asks_for(path):
    summary = json.loads(path.read_text())
    assert path.stat().st_size <= summaries.LONGEST
    assert {"raw", "gpu", "versions", "commit", "commands"} <= summary.keys()
    assert {"cases", "served", "firing", "figures"} & summary.keys(), "no figures"
    assert set(summary["raw"]) <= archive.members().keys()


@pytest.mark.parametrize("name", [name for name in archive.members() if name.startswith("e2e-")])
def test_a_summary_is_that_of_its_record(name):
    written = summaries.RUNS / name.removeprefix("e2e-")
    commit = json.loads(written.read_text())["commit"]
    assert summaries.text(summaries.of(json.loads(archive.members()[name]), name, commit)) == written.read_text()


def test_the_archive_is_small_and_its_hash_stands_on_the_page():
    assert archive.ARCHIVE.stat().st_size < 1_000_000
    page = (archive.ROOT / "docs/evidence/README.md").read_text()
    assert archive.sha256() in page and gpu_runs.raw() in page


def test_equal_records_make_equal_archives(tmp_path):
    records = {"b/c.txt": b"c" * 1000, "a.json": b"{}"}
    for name, order in (("one", records), ("other", dict(reversed(records.items())))):
        archive.write(order, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert archive.members(tmp_path / "one") == records
    archive.write(records | {"a.json": b"{} "}, tmp_path / "other")
    assert archive.sha256(tmp_path / "one") != archive.sha256(tmp_path / "other")


def test_cases_of_an_earlier_run_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(summaries, "RUNS", tmp_path / "runs")
    kept: dict[str, bytes] = {}
    monkeypatch.setattr(archive, "members", lambda: dict(kept))
    monkeypatch.setattr(archive, "write", kept.update)
    about = {"engine": "vllm", "release": "1.0", "gpu": "NVIDIA H200", "torch": "2"}
    side = {"compared": {"alone": {"difference": 0.5, "in_common": 3}}}
    for case in ("order", "empty"):
        file = tmp_path / "e2e-h200-vllm-1.0.json"
        file.write_text(json.dumps(about | {"cases": {case: {"sides": {"stock": side, "patched": side}, "failures": []}}}))
        evidence.keep([file], "abc")
    summary = json.loads((tmp_path / "runs/h200-vllm-1.0.json").read_text())
    assert list(summary["cases"]) == ["empty", "order"] and summary["cases"]["order"]["stock"] == "0.5, 3 of the top 20"
    assert json.loads(kept["e2e-h200-vllm-1.0.json"])["cases"].keys() == {"order", "empty"}


def test_a_summary_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="4096 at most"):
        summaries.text({"raw": ["x"], "figures": {"a": "b" * 5000}})


@pytest.mark.parametrize("name", ["plain.jsonl", "packed.jsonl.xz"])
def test_launches_are_read_as_they_were_written(name, tmp_path):
    kept = Kept(2)
    kept.offer({"entry": "a", "new": None, "plan": None, "call": {"of": "", "args": [1], "kwargs": {}}})
    write(tmp_path / name, {"engine": "vllm"}, kept)
    assert read(tmp_path / name) == ({"engine": "vllm"}, kept.launches())
    assert (b"entry" in (tmp_path / name).read_bytes()) == (name == "plain.jsonl")
