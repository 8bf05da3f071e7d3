"""Process records: what another process reads, torn and foreign files, owners."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from attnfix.compat import records


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def written(fixes=2):
    record = records.Record(fixes)
    rows = [{"fix": f"sglang.f{i}", "state": "installed", "reason": "", "counters": {}} for i in range(fixes)]
    record.write(records.describe("sglang", "0.5.9", rows))
    return record


def test_counters_are_seen_without_any_call(home):
    record = written()
    counters = record.counters(1)
    counters.calls += 5
    counters.corrections, counters.rows = 3, 2**40
    (seen,) = records.read_all()
    assert seen["alive"] and seen["pid"] == os.getpid() and seen["release"] == "0.5.9"
    assert seen["fixes"][0]["state"] == "installed" and seen["fixes"][0]["counters"]["calls"] == 0
    assert seen["fixes"][1]["state"] == "effective"
    assert seen["fixes"][1]["counters"] == {"calls": 5, "corrections": 3, "rows": 2**40}


def test_only_the_owner_can_read_them(home):
    record = written()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600


def test_an_ended_process_is_told_apart(home):
    code = "from attnfix.compat import records\nr = records.Record(1)\nr.write(records.describe('vllm', None, []))"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [seen["alive"] for seen in records.read_all()] == [False]


@pytest.mark.parametrize("damage", [b"", b"attnfix1", b"x" * 70000])
def test_torn_and_foreign_files_are_no_record(home, damage):
    record = written()
    record.path.write_bytes(damage)
    (home / "other.attnfix").write_bytes(os.urandom(5000))
    assert list(records.read_all()) == []


def test_a_text_that_is_being_written_is_no_record(home):
    record = written()
    record._map[8:16] = b"\0" * 8
    assert list(records.read_all()) == []


def test_a_folder_of_someone_else_is_not_used(home, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError):
        records.Record(1)


def test_a_link_in_place_of_the_record_is_refused(home, tmp_path):
    record = written()
    record.path.unlink()
    (tmp_path / "victim").write_text("precious")
    record.path.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        records.Record(1)
    assert (tmp_path / "victim").read_text() == "precious"


def test_more_fixes_than_fit_is_an_error(home):
    with pytest.raises(ValueError, match="no room"):
        records.Record(200)


def test_old_records_of_ended_processes_are_removed(home):
    home.mkdir(mode=0o700)
    import socket

    names = {"old": 3, "new": 0}
    for name, days in names.items():
        path = home / f"{socket.gethostname()}-{10**8 + days}-1.attnfix"
        path.write_bytes(b"x")
        os.utime(path, (path.stat().st_mtime - days * 86400,) * 2)
        names[name] = path
    record = written()
    assert record.path.exists() and names["new"].exists() and not names["old"].exists()


def test_the_default_folder_is_not_shared_and_not_a_link(tmp_path, monkeypatch):
    import tempfile

    monkeypatch.delenv("ATTNFIX_RUN_DIR", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"attnfix-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="link"):
        records.Record(1)


def test_a_full_disk_leaves_no_file(home, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError):
        records.Record(1)
    assert list(home.iterdir()) == []
