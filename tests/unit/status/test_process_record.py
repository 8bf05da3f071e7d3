"""Process records: what another process reads, who is alive, torn and foreign files, owners, disks that refuse."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from attnfix.compat.status import process_record

TEXT = {"engine": "sglang", "release": "0.5.9"}
#: Another process with a record, which then does as it is told on standard input. Named arguments: what it says of itself
HOLDER = """
import json, os, socket, sys
from attnfix.compat.status import process_record
record = process_record.Record()
pid = os.getpid()
text = {"pid": pid, "started": process_record.started(pid), "host": socket.gethostname(), "engine": "vllm",
        "release": None, "fixes": []}
record.write({**text, **json.loads(sys.argv[1])})
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture
def holder(home):
    """`holder(host=…)`: a process that has a record."""
    processes = []

    def start(**says):
        command = [sys.executable, "-c", HOLDER, json.dumps(says)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def end(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def tell(process, code):
    process.stdin.write(code + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def alive():
    return [seen["alive"] for seen in process_record.read_all()]


def written(fixes=2):
    record = process_record.Record()
    rows = [{"fix": f"sglang.f{i}", "state": "installed", "reason": "", "counters": {}} for i in range(fixes)]
    who = {"pid": os.getpid(), "started": process_record.started(os.getpid()), "host": socket.gethostname()}
    record.write({**TEXT, **who, "fixes": rows})
    return record


def test_counters_are_seen_without_any_call(home):
    record = written()
    counters = record.counters(1)
    counters.calls += 5
    counters.corrections, counters.rows = 3, 2**40
    (seen,) = process_record.read_all()
    assert seen["alive"] and seen["pid"] == os.getpid() and seen["release"] == "0.5.9"
    assert seen["fixes"][0]["state"] == "installed" and seen["fixes"][0]["counters"]["calls"] == 0
    assert seen["fixes"][1]["state"] == "effective"
    assert seen["fixes"][1]["counters"] == {"calls": 5, "corrections": 3, "rows": 2**40}


def test_only_the_owner_can_read_them(home):
    record = written()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600
    assert [path.suffix for path in home.iterdir()] == [".attnfix"]


# Who is alive


def test_the_lock_tells_life_however_the_process_ends(holder):
    process = holder()
    assert alive() == [True]
    end(process)
    assert alive() == [False]


def test_a_killed_process_that_nobody_waited_for_has_ended(holder):
    process = holder()
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie: /proc still has pid and start time
    assert process_record.started(process.pid) and alive() == [False]
    assert not process_record.runs(process.pid, process_record.started(process.pid))


def test_host_names_and_pids_of_other_containers_mean_nothing(holder):
    """Two that say the same of themselves, and a pid that is another process's here."""
    says = {"host": "container", "pid": 1, "started": 5}
    one, two = holder(**says), holder(**says)
    assert [(text["pid"], text["host"], text["alive"]) for text in process_record.read_all()] == [(1, "container", True)] * 2
    end(one)
    assert sorted(alive()) == [False, True] and two.poll() is None
    end(two)
    assert alive() == [False, False]


def test_a_forked_child_does_not_keep_its_parent_alive(holder):
    process = holder()
    tell(process, "os.fork() or (record.leave_to_parent(), __import__('time').sleep(60), os._exit(0))")
    time.sleep(0.2)
    end(process)
    assert alive() == [False]


def test_a_forked_child_that_leaves_the_lock_does_not_free_it(holder):
    process = holder()
    tell(process, "pid = os.fork() or (record.leave_to_parent(), os._exit(0)); os.waitpid(pid, 0)")
    assert alive() == [True]


def test_a_started_program_does_not_keep_its_parent_alive(holder):
    process = holder()
    tell(process, "import subprocess; subprocess.Popen(['sleep', '60'], close_fds=False, stdout=subprocess.DEVNULL)")
    end(process)
    assert alive() == [False]


def test_a_number_that_was_given_away_is_not_closed(home):
    """A daemon closes all descriptors before it forks; the number of the lock is then another file's."""
    record = written()
    os.close(record._locked)
    other = os.open(os.devnull, os.O_RDONLY)
    os.dup2(other, record._locked)
    record.leave_to_parent()
    os.fstat(record._locked)
    os.close(record._locked)


def without_locks(*args):
    raise OSError(38, "Function not implemented")


def test_without_locks_pid_and_start_time_tell_it_on_this_host(home, holder, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", without_locks)
    record = written()
    assert record.unlocked and "not implemented" in record.unlocked
    assert alive() == [True]
    monkeypatch.undo()
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(home))
    assert alive() == [True], "nobody holds it, but its text says that it was never locked"
    monkeypatch.setattr(process_record, "started", lambda pid: 1)
    written_by_another = {"pid": os.getpid(), "started": 1, "host": socket.gethostname(), "fixes": []}
    record.unlocked = "no locks"
    record.write({**TEXT, **written_by_another})
    assert alive() == [False], "a reused pid"
    record.write({**TEXT, **written_by_another, "host": "elsewhere"})
    assert alive() == [True], "nothing can tell"


# What is no record


@pytest.mark.parametrize("damage", [b"", b"attnfix1", b"x" * 70000])
def test_torn_and_foreign_files_are_no_record(home, damage):
    record = written()
    record.path.write_bytes(damage)
    (home / "other.attnfix").write_bytes(os.urandom(5000))
    assert list(process_record.read_all()) == []


@pytest.mark.parametrize(
    "text",
    [{}, {"pid": "1"}, {"release": 1}, {"fixes": [{}]}, {"fixes": 1}, {"kernels": {"op": "reference"}}, {"role": 1},
     {"rank": 0}, {"fixset": 5}, {"activated": "now"}, {"attnfix": []}],
)  # fmt: skip
def test_a_text_of_another_shape_is_no_record(home, text):
    record = written()
    who = {"pid": 1, "started": 1, "host": "h", **TEXT}
    record.write({**who, "fixes": [], **text} if text else {})
    assert list(process_record.read_all()) == []


def test_a_text_nested_too_deep_is_no_record(home):
    record = written()
    text = b"[" * 10_000
    record._map[4096 : 4096 + len(text)] = text
    record._map[8:16] = len(text).to_bytes(8, "little")
    assert list(process_record.read_all()) == []


def test_a_text_that_is_being_written_is_no_record(home):
    record = written()
    record._map[8:16] = b"\0" * 8
    assert list(process_record.read_all()) == []


def test_a_text_that_has_just_been_written_is_one(home, monkeypatch):
    """A reader that met the moment of writing looks again: else a process would seem to have no record for that moment."""
    record = written()
    length = record._map[8:16]
    record._map[8:16] = b"\0" * 8
    monkeypatch.setattr(time, "sleep", lambda seconds: record._map.__setitem__(slice(8, 16), length))
    assert alive() == [True]


def test_a_text_that_is_too_long_keeps_what_counts(home):
    record = process_record.Record()
    row = {"fix": "sglang.f", "state": "failed", "reason": "r" * 40000, "counters": {}, "traceback": "t" * 40000}
    record.write({**TEXT, "pid": 1, "started": 1, "host": "h", "fixes": [row]})
    (seen,) = process_record.read_all()
    assert seen["fixes"][0]["state"] == "failed" and seen["fixes"][0]["reason"].startswith("rrr")


# Disks and owners


def test_a_folder_of_someone_else_is_not_used(home, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError):
        process_record.Record()


def test_a_link_in_place_of_a_record_is_not_followed(home, tmp_path):
    record = written()
    record.path.unlink()
    victim = tmp_path / "victim"
    victim.write_bytes(process_record.MAGIC + b"precious")
    (home / "link.attnfix").symlink_to(victim)
    os.utime(home / "link.attnfix", (0, 0), follow_symlinks=False)
    os.utime(victim, (0, 0))
    process_record.Record()
    assert victim.read_bytes() == process_record.MAGIC + b"precious" and list(process_record.read_all()) == []


def test_more_fixes_than_fit_is_an_error(home):
    with pytest.raises(ValueError, match="no room"):
        process_record.Record().counters(338)


def test_old_records_of_ended_processes_are_removed_whatever_their_host(home, holder):
    """By the lock: a record of a live process stays, however old its file is. So does one that tells of something."""
    files, failed = [], {"fix": "vllm.f", "state": "failed", "reason": ""}
    for _ in range(3):
        process = holder(host="elsewhere", fixes=[failed])
        files += set(home.glob("*.attnfix")) - set(files)
        if len(files) > 1:
            end(process)
    living, ended, new = files
    for path in (living, ended):
        os.utime(path, (time.time() - 3 * 86400,) * 2)
    record = written()
    assert set(home.glob("*.attnfix")) == {living, new, record.path}


@pytest.mark.parametrize(
    "counts, state, kept",
    [((0, 0, 0), "installed", False), ((9, 0, 0), "installed", False), ((9, 1, 0), "installed", True),
     ((0, 0, 0), "failed", True), ((0, 0, 0), "dormant", False)],
)  # fmt: skip
def test_a_record_that_tells_of_nothing_goes_with_its_process(home, holder, counts, state, kept):
    process = holder(fixes=[{"fix": "vllm.f", "state": state, "reason": ""}])
    tell(process, f"c = record.counters(0); c.calls, c.corrections, c.rows = {counts}")
    process_record.Record()
    assert len(list(home.glob("*.attnfix"))) == 2, "it lives"
    end(process)
    last = process_record.Record()
    assert [path != last.path for path in home.glob("*.attnfix")].count(True) == 1 + kept, "one is of this process, not closed"


def test_a_process_looks_at_a_few_of_thousands(home, monkeypatch):
    record = written()
    for number in range(500):
        (home / f"copy-{number}.attnfix").write_bytes(record.path.read_bytes())
    looked = []
    opened = process_record._opened
    monkeypatch.setattr(process_record, "_opened", lambda path: looked.append(path) or opened(path))
    process_record.Record()
    assert 0 < len(looked) <= 64


def test_the_default_folder_is_not_shared_and_not_a_link(tmp_path, monkeypatch):
    import tempfile

    monkeypatch.delenv("ATTNFIX_RUN_DIR", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"attnfix-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="link"):
        process_record.Record()


def test_a_disk_without_room_leaves_no_file(home):
    """The limit on file sizes stands for a full disk: it refuses the room at the same call."""
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))\n"
    code += "from attnfix.compat.status import process_record\n"
    done = subprocess.run([sys.executable, "-c", code + "process_record.Record()"], capture_output=True, text=True)
    assert "OSError" in done.stderr and "too large" in done.stderr
    assert list(home.iterdir()) == []
