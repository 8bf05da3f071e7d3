"""docs/evidence: summaries are short and made of the raw records; the archive is equal to the byte for equal records."""

from __future__ import annotations

import json

import pytest

from scripts.evidence import archive, summaries
from scripts.pages import gpu_runs

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
