"""Engine processes without a record, found by what they map and what they are called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from attnfix.cli import status
from attnfix.compat.status import unpatched_processes
from attnfix.compat.status.process_record import started

MAPS = "import mmap, os, sys, time; file = open(sys.argv[1], 'rb'); held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
#: A process of an engine, with a record in which a fix has failed
RECORDED = (
    MAPS
    + """
from attnfix.compat.status import process_record
record = process_record.Record()
row = {"fix": "vllm.empty-context-chunks", "state": "failed", "reason": "boom"}
record.write({"pid": os.getpid(), "started": process_record.started(os.getpid()), "host": "h", "engine": "vllm",
              "fixes": [row]})
record.counters(0).calls = 5
"""
)
CALLED = "import setproctitle, sys, time; setproctitle.setproctitle(sys.argv[1])\n"
WAIT = "print('ready', flush=True); time.sleep(120)"


@pytest.fixture
def start():
    """`start(code, *arguments)`: the pid of a process of this Python that has run `code` and waits."""
    running = []

    def start(code, *arguments, **environment):
        command = [sys.executable, "-c", code + WAIT, *map(str, arguments)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}))
        assert running[-1].stdout.readline() == "ready\n"
        return running[-1].pid

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def roots(tmp_path):
    """Installed engines with one compiled module each; sglang's is another package's."""
    for name in ("vllm/_C.abi3.so", "sgl_kernel/common_ops.abi3.so", "other/_C.abi3.so"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"\x7fELF")
    return {name: tmp_path / name for name in ("sglang", "vllm")}


def found(roots, pid, recorded=()):
    return next((row for row in unpatched_processes.without_record(roots, recorded) if row["pid"] == pid), None)


@pytest.mark.parametrize("file, engine", [("vllm/_C.abi3.so", "vllm"), ("sgl_kernel/common_ops.abi3.so", "sglang")])
def test_a_process_that_maps_a_compiled_module_is_found(start, roots, file, engine):
    pid = start(MAPS, roots["vllm"].parent / file)
    row = found(roots, pid)
    assert (row["engine"], row["role"], row["state"]) == (engine, "process", "starting")
    assert found(roots, pid, [(pid, started(pid))]) is None, "it has a record"
    assert found(roots, pid, [(pid, started(pid) - 1)]), "a record of an earlier process with that pid"
    assert found({}, pid) is None, "no engine is installed here"


def test_a_process_that_is_called_like_an_engines_is_found_if_it_is_of_this_python(start, roots, tmp_path, monkeypatch):
    pid = start(CALLED, "VLLM::Worker_TP1")
    row = found(roots, pid)
    assert (row["engine"], row["role"], row["rank"]) == ("vllm", "worker", "TP1")
    assert found({"sglang": roots["sglang"]}, pid) is None, "vllm is not installed here"
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert found(roots, pid) is None, "its modules come from another Python's site folder"


def test_other_processes_are_left_out(start, roots):
    assert found(roots, start(MAPS, roots["vllm"].parent / "other/_C.abi3.so")) is None
    assert found(roots, start(CALLED, "postgres::writer")) is None
    assert found(roots, os.getpid()) is None


def test_one_that_was_started_before_attnfix_needs_a_restart(start, roots, monkeypatch):
    pid = start(MAPS, roots["vllm"] / "_C.abi3.so")
    monkeypatch.setattr(unpatched_processes, "_installed_at", lambda: time.time() + 5)
    assert (found(roots, pid)["state"], found(roots, pid)["reason"]) == (
        "restart needed", "started before attnfix was installed")  # fmt: skip
    monkeypatch.setattr(unpatched_processes, "_installed_at", lambda: time.time() - 3600)
    assert found(roots, pid)["state"] == "starting"
    monkeypatch.setattr(unpatched_processes, "_STARTING_S", 0)
    assert found(roots, pid)["state"] == "no record" and "could write none" in found(roots, pid)["reason"]


def test_one_that_is_switched_off_is_told_apart(start, roots):
    pid = start(MAPS, roots["vllm"] / "_C.abi3.so", ATTNFIX="0")
    assert (found(roots, pid)["state"], found(roots, pid)["reason"]) == ("off", "ATTNFIX=0")


def test_one_of_another_deployment_keeps_its_records_elsewhere(start, roots, tmp_path, monkeypatch):
    monkeypatch.setattr(unpatched_processes, "_STARTING_S", 0)
    theirs = str(tmp_path / "theirs")
    pid = start(MAPS, roots["vllm"] / "_C.abi3.so", ATTNFIX_RUN_DIR=theirs)
    assert (found(roots, pid)["state"], found(roots, pid)["reason"]) == ("elsewhere", f"its records are in {theirs}")
    monkeypatch.setenv("ATTNFIX_RUN_DIR", theirs)
    assert found(roots, pid)["state"] == "no record", "it should have one where we look"


def test_a_process_that_has_a_title_has_the_switches_of_its_parent(start, roots, tmp_path, monkeypatch):
    """setproctitle overwrites the environment that /proc shows."""
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {CALLED + WAIT!r}, 'VLLM::Worker_TP0'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
    )
    start(code, tmp_path / "pid", ATTNFIX="0")
    pid = int((tmp_path / "pid").read_text())
    try:
        assert b"ATTNFIX" not in Path(f"/proc/{pid}/environ").read_bytes(), "nothing to be tested"
        assert found(roots, pid)["state"] == "off"
    finally:
        os.kill(pid, 9)


def test_the_first_process_of_a_container_has_switches_of_its_own(monkeypatch):
    """Beside it, a process whose environment was wiped, and which it started."""
    shown = {"/proc/1/environ": b"A=1\0ATTNFIX=0\0", "/proc/7/environ": b"\0" * 40}
    monkeypatch.setattr(Path, "read_bytes", lambda path: shown[str(path)])
    monkeypatch.setattr(unpatched_processes, "parent", {7: 1, 1: 0}.__getitem__)
    assert unpatched_processes._why(1, 0, None) == ("off", "ATTNFIX=0")
    assert unpatched_processes._why(7, 0, None) == ("off", "ATTNFIX=0")


def test_a_folder_that_is_missing_holds_nothing_up(start, roots, tmp_path, monkeypatch):
    pid = start(MAPS, roots["vllm"] / "_C.abi3.so")
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "missing"))
    assert list(unpatched_processes.by_mapping([])) == [] and found(roots, pid)["engine"] == "vllm"


def test_the_time_of_installation_is_the_pth_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert unpatched_processes._installed_at() is None
    (tmp_path / "attnfix.pth").touch()
    assert abs(unpatched_processes._installed_at() - time.time()) < 60


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of the records, of which their files can be removed."""
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def empty(home):
    for file in home.iterdir():
        file.unlink()


def shown(monkeypatch, roots, pid):
    """All rows of a process in `attnfix status`, and what it says is missing there."""
    monkeypatch.setattr(status, "installed_root", lambda engine: roots[engine.name])
    told = status.collect(expect=False)
    rows = [row for row in (*told["processes"], *told["unrecorded"]) if row["pid"] == pid]
    return rows, [sentence for sentence in told["missing"] if f"(pid {pid})" in sentence]


def test_one_with_another_temporary_folder_is_read_where_it_holds_its_record(start, roots, tmp_path, monkeypatch):
    """As an entry point that exports TMPDIR makes it, or a `/tmp` that has filled up since: the server is healthy."""
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "mine"))
    monkeypatch.setattr(unpatched_processes, "_STARTING_S", 0)
    (tmp_path / "job").mkdir()
    pid = start(RECORDED, roots["vllm"] / "_C.abi3.so", TMPDIR=str(tmp_path / "job"))
    for removed in (False, True):
        ((row,), _) = shown(monkeypatch, roots, pid)
        assert row["alive"] and row["fixes"] and row["removed"] is removed
        assert status.readiness(status.collect(expect=False))[0] == 0
        if not removed:
            empty(tmp_path / "job" / f"attnfix-{os.getuid()}")


def test_another_process_of_that_folder_is_told_as_it_is(start, roots, tmp_path, monkeypatch):
    """Beside one whose record was read: of what is missing there, nothing may be hidden."""
    monkeypatch.setattr(unpatched_processes, "_STARTING_S", 0)
    for name in ("job", "mine"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "mine"))
    one, two = (start(RECORDED, roots["vllm"] / "_C.abi3.so", TMPDIR=str(tmp_path / "job")) for _ in range(2))
    held = unpatched_processes._open
    monkeypatch.setattr(unpatched_processes, "_open", lambda pid, record: held(pid, record) if pid == one else ())
    ((row,), _), ((other,), missing) = (shown(monkeypatch, roots, pid) for pid in (one, two))
    assert row["fixes"] and other["state"] in ("starting", "no record") and (missing or other["state"] == "starting")


def test_two_deployments_may_be_kept_apart_by_their_temporary_folders(start, roots, tmp_path, monkeypatch):
    monkeypatch.setattr(unpatched_processes, "_STARTING_S", 0)
    (tmp_path / "job").mkdir()
    pid = start(RECORDED, roots["vllm"] / "_C.abi3.so", TMPDIR=str(tmp_path / "job"))
    ours = [(os.getpid(), 1)]
    assert list(unpatched_processes.by_mapping(ours)) == []
    (row,) = [row for row in unpatched_processes.without_record(roots, ours) if row["pid"] == pid]
    assert row["state"] == "elsewhere"


def in_another_container(monkeypatch, pid):
    look, its = os.readlink, f"/proc/{pid}/ns/mnt"
    monkeypatch.setattr(os, "readlink", lambda path, **given: "mnt:[1]" if str(path) == its else look(path, **given))


def test_one_of_another_container_keeps_its_records_there(start, roots, tmp_path, monkeypatch):
    (tmp_path / "job").mkdir()
    pid = start(RECORDED, roots["vllm"] / "_C.abi3.so", TMPDIR=str(tmp_path / "job"))
    in_another_container(monkeypatch, pid)
    theirs = tmp_path / "job" / f"attnfix-{os.getuid()}"
    ((row,), missing) = shown(monkeypatch, roots, pid)
    assert (row["state"], row["reason"], missing) == ("elsewhere", f"its records are in {theirs}", [])


def test_a_record_under_a_name_that_only_its_container_sees_is_elsewhere(start, roots, home, tmp_path, monkeypatch):
    """Its folder is called as ours is, and is another."""
    pid = start(RECORDED, roots["vllm"] / "_C.abi3.so")
    in_another_container(monkeypatch, pid)
    seen = unpatched_processes._mapped(pid)
    monkeypatch.setattr(unpatched_processes, "_mapped", lambda _: seen)
    home.rename(tmp_path / "theirs")
    home.mkdir()
    assert found(roots, pid)["state"] == "elsewhere"


@pytest.mark.parametrize("remove", [empty, shutil.rmtree])
def test_a_record_that_was_removed_is_read_where_its_process_holds_it(start, roots, home, monkeypatch, remove):
    pid = start(RECORDED, roots["vllm"] / "_C.abi3.so")
    monkeypatch.setattr(unpatched_processes, "_STARTING_S", 0)
    before, _ = shown(monkeypatch, roots, pid)
    remove(home)
    ((row,), missing) = shown(monkeypatch, roots, pid)
    assert any("was removed" in sentence for sentence in status.removed([row])) and not status.removed(before)
    assert missing and row["alive"] and row["fixes"] == before[0]["fixes"] and row["fixes"][0]["counters"]["calls"] == 5


def test_a_record_that_was_removed_and_cannot_be_read_is_none(start, roots, home, monkeypatch):
    """A process that has closed all descriptors, as one that goes into the background does."""
    pid = start(RECORDED + "os.closerange(3, 256)\n", roots["vllm"] / "_C.abi3.so")
    empty(home)
    ((row,), missing) = shown(monkeypatch, roots, pid)
    assert (row["state"], row["reason"], len(missing)) == ("no record", "its record was removed: restart it", 1)


def test_a_process_that_let_go_of_its_lock_is_shown_with_what_it_counted(start, roots, home, monkeypatch):
    pid = start(RECORDED + "os.closerange(3, 256)\n", roots["vllm"] / "_C.abi3.so")
    (row,) = (row for row in shown(monkeypatch, roots, pid)[0] if row["alive"])
    assert row["fixes"][0]["counters"]["calls"] == 5


def test_a_record_that_cannot_be_read_is_none(start, roots, home, monkeypatch):
    pid = start(RECORDED + "record._map[:8] = b'attnfix9'\n", roots["vllm"] / "_C.abi3.so")
    assert shown(monkeypatch, roots, pid)[0][0]["state"] == "starting", "its first text may be on its way"
    monkeypatch.setattr(unpatched_processes, "_WRITTEN_S", 0)
    ((row,), missing) = shown(monkeypatch, roots, pid)
    assert (row["state"], row["reason"], len(missing)) == ("no record", "its record cannot be read", 1)


def test_an_import_may_take_minutes_where_nothing_of_the_engine_is_loaded(start, roots, monkeypatch):
    """A cold image on network storage: what the engine needs is read first, and its own modules come last."""
    monkeypatch.setattr(unpatched_processes, "_STARTING_S", 0)
    pid = start(CALLED, "VLLM::Worker_TP1")
    assert found(roots, pid)["state"] == "starting"
    monkeypatch.setattr(unpatched_processes, "_IMPORTING_S", 0)
    assert found(roots, pid)["state"] == "no record"
