"""Records that somebody else may have placed: nothing hangs, nothing large is read, nothing foreign is printed raw."""

from __future__ import annotations

import fcntl
import io
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import prometheus_client
import pytest
from rich.console import Console

from attnfix.cli import output, status, status_view
from attnfix.compat.status import metrics, process_record
from attnfix.patches.catalogue import FIXES

ANOTHER = 12345
ESCAPES = "\x1b]0;owned\x07\x1b[2J\nall is well\n\u202egnp\ud800\x9b"
FIX = FIXES[0]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def deadline():
    """A test that hangs fails, and one that eats memory gets no more of it."""

    def over(*args):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(20)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def gives_away(monkeypatch):
    """`gives_away(path)`: it is another user's from now on."""

    def give(path):
        if os.getuid() == 0:
            os.chown(path, ANOTHER, -1, follow_symlinks=False)
        else:  # only root can: we become the other one
            monkeypatch.setattr(os, "getuid", lambda: ANOTHER)

    return give


def text(**says):
    pid = os.getpid()
    rows = [{"fix": FIX.id, "state": "installed", "reason": "why", "counters": {}}]
    who = {
        "pid": pid,
        "started": process_record.started(pid),
        "host": socket.gethostname(),
        "engine": FIX.engine,
        "release": "0.5.9",
    }
    return {**who, "server": metrics.server(), "fixes": rows, **says}


def written(**says):
    record = process_record.Record()
    record.write(text(**says))
    return record


def plant(home, kind, name="planted.attnfix"):
    """Something in the folder that is no file of ours, as old as what is thrown away."""
    path = home / name
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        with path.open("wb") as file:
            file.write(process_record.MAGIC)
            file.truncate(1 << 40)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    os.utime(path, (0, 0), follow_symlinks=False)
    return path


KINDS = ("fifo", "zero", "huge", "socket", "folder")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_small_file_is_no_record(home, kind):
    record = written()
    plant(home, kind)
    assert [seen["pid"] for seen in process_record.read_all()] == [os.getpid()]
    assert record.path.exists()


@pytest.mark.parametrize("suffix", ["attnfix", "new"])
@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_it_hold_up_a_process_that_takes_its_record(home, kind, suffix):
    home.mkdir(mode=0o700)
    path = plant(home, kind, f"planted.{suffix}")
    written()
    assert os.path.lexists(path) or kind == "huge", "what is not ours is left alone"


def test_an_engine_starts_beside_a_fifo_in_the_folder(home, tmp_path):
    """From the import hook on, in a process of its own; `home` is where ATTNFIX_RUN_DIR says."""
    home.mkdir()
    plant(home, "fifo", "x.attnfix"), plant(home, "fifo", "x.new")
    (tmp_path / "site" / "vllm").mkdir(parents=True)
    (tmp_path / "site" / "vllm" / "__init__.py").touch()
    code = "import vllm, attnfix; from attnfix.compat.status import process_record; print(len(list(process_record.read_all())))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30)
    assert done.stdout == "1\n" and not done.stderr


def test_a_device_is_not_even_opened(home, monkeypatch):
    """To open a FIFO lets its writer go on, and to open a tape rewinds it."""
    written()
    path, opened = plant(home, "fifo"), []
    real = os.open
    monkeypatch.setattr(os, "open", lambda name, *args, **how: opened.append(str(name)) or real(name, *args, **how))
    list(process_record.read_all())
    assert opened and str(path) not in opened


def test_a_fifo_that_takes_a_files_place_in_between_does_not_hang(home, monkeypatch):
    record = written()
    real = os.open

    def replaced(name, *args, **how):
        if str(name) == str(record.path):
            record.path.unlink()
            os.mkfifo(record.path)
        return real(name, *args, **how)

    monkeypatch.setattr(os, "open", replaced)
    assert list(process_record.read_all()) == []


# Owners


def test_a_record_of_another_user_is_none(home, gives_away):
    """In a folder that everyone may write to, where the operator has named it."""
    record = written()
    home.chmod(0o1777)
    gives_away(record.path)
    if os.getuid():
        gives_away(record.path)
    assert list(process_record.read_all()) == [] or os.getuid() == ANOTHER
    os.utime(record.path, (0, 0))
    fcntl.flock(record._locked, fcntl.LOCK_UN)


def test_a_reader_sees_the_records_of_the_owner_of_a_folder_that_is_named(home, gives_away):
    """Root asks for the status of a server that runs as another user."""
    if os.getuid():
        pytest.skip("only root can give a file away")
    record = written()
    gives_away(home), gives_away(record.path)
    assert [seen["pid"] for seen in process_record.read_all()] == [os.getpid()]
    assert process_record.refused() is None


@pytest.fixture
def default(tmp_path, monkeypatch):
    monkeypatch.delenv("ATTNFIX_RUN_DIR", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path / f"attnfix-{os.getuid()}"


@pytest.mark.parametrize("fault", ["owner", "mode", "link"])
def test_records_are_not_read_from_a_default_folder_that_is_not_safely_ours(default, tmp_path, gives_away, fault):
    """Somebody else has made /tmp/attnfix-UID first."""
    written()
    assert len(list(process_record.read_all())) == 1 and process_record.refused() is None
    if fault == "owner":
        gives_away(default)
        if os.getuid() == ANOTHER:
            (default.with_name(f"attnfix-{ANOTHER}")).symlink_to(default)
    elif fault == "mode":
        default.chmod(0o770)
    else:
        default.rename(tmp_path / "elsewhere")
        default.symlink_to(tmp_path / "elsewhere")
    assert list(process_record.read_all()) == []
    assert str(process_record.folder()) in process_record.refused()
    assert any(process_record.refused() in sentence for sentence in status.collect()["warnings"])


def test_no_folder_is_nothing_to_complain_of(default, home):
    assert process_record.refused() is None and list(process_record.read_all()) == []


@pytest.mark.parametrize("place", ["a file", "nowhere"])
def test_a_place_that_is_no_folder_is_told(place, monkeypatch, tmp_path):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / place))
    fault = f"records are not read: {tmp_path / place} is no folder" if place == "a file" else None
    assert process_record.refused() == fault and list(process_record.read_all()) == []
    assert str(tmp_path / place) in process_record.unseen()


# What is printed


def test_names_in_a_record_are_one_printable_line(home):
    written(role=ESCAPES, rank=ESCAPES, host=ESCAPES, release=ESCAPES, attnfix=ESCAPES, fixset=ESCAPES)
    (seen,) = process_record.read_all()
    for name in ("role", "rank", "host", "release", "attnfix", "fixset"):
        assert seen[name].isprintable() and "all is well" in seen[name]


def shown(found, width=200):
    console = output.Terminal(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(status_view.view(found, width))
    return console.file.getvalue()


def test_a_forged_record_prints_no_escape_and_no_line_of_its_own(home):
    rows = [{"fix": f"{FIX.engine}.{ESCAPES}[/x]", "state": f"failed{ESCAPES}", "reason": ESCAPES, "counters": {}},
            {"fix": FIX.id, "state": "conflict", "reason": ESCAPES, "counters": {}}]  # fmt: skip
    kernels = {"op\x1b[2J": {"path": "reference", "reason": ESCAPES}}
    written(role=ESCAPES, rank=ESCAPES, release=ESCAPES, fixes=rows, kernels=kernels)
    found = status.collect()
    told = shown(found)
    assert all(each.isprintable() or each == "\n" for each in told), ascii(told)
    assert "all is well" in told and not [line for line in told.splitlines() if line.startswith("all is well")]
    json.dumps(found)


def test_the_metrics_page_stands_whatever_a_record_says(home):
    """A lone surrogate cannot be encoded: the whole page of the engine would be an error."""
    fix = f"{FIX.engine}.{ESCAPES}"
    written(release=ESCAPES, fixes=[{"fix": fix, "state": f"x{ESCAPES}", "reason": "", "counters": {}}])
    registry = prometheus_client.CollectorRegistry()
    registry.register(metrics._Collector())
    page = prometheus_client.generate_latest(registry).decode()
    assert "attnfix_fix_info{" in page and all(each.isprintable() or each == "\n" for each in page)


def test_a_text_nested_deeper_than_any_of_ours_is_no_record(home):
    """Else whatever walks through it would come to the end of its stack."""
    nested = []
    for _ in range(500):
        nested = [nested]
    written(more=nested)
    assert list(process_record.read_all()) == []


@pytest.mark.parametrize("number", [338, 339, 5000])
def test_a_record_shows_no_more_than_it_has_room_for(home, number, monkeypatch):
    """Its counters have room for 338 fixes; each may have a reason of its own, and be missing."""
    monkeypatch.setattr(process_record, "_SIZE", 1 << 20)
    rows = [{"fix": f"{FIX.engine}.f{at}", "state": "failed", "reason": f"why {at}", "counters": {}} for at in range(number)]
    written(fixes=rows)
    found = status.collect()
    assert bool(found["processes"]) is (number == 338)
    assert len(shown(found, 80).splitlines()) < 1800


@pytest.mark.parametrize(
    "says", [{"role": "r" * 500_000}, {"release": "1" * 500_000}, {"kernels": {"op": {"path": "reference"}}}]
)
def test_no_text_of_a_record_fills_the_screen(home, says, monkeypatch):
    monkeypatch.setattr(process_record, "_SIZE", 1 << 20)
    written(**{"fixes": [{"fix": FIX.id, "state": "failed", "reason": "r" * 400_000, "counters": {}}], **says})
    assert len(shown(status.collect(), 80)) < 30_000


def test_a_thousand_processes_do_not_fill_the_screen(home):
    record = written()
    (one,) = process_record.read_all()
    found = status.collect() | {"processes": [one | {"pid": number} for number in range(5000)]}
    found["missing"] = [f"sentence {number}" for number in range(5000)]
    assert len(shown(found, 80).splitlines()) < 2500 and record


def test_the_page_does_not_wait_for_a_fifo(home):
    written()
    plant(home, "fifo")
    begin = time.monotonic()
    assert metrics.families() and time.monotonic() - begin < 5
    assert stat.S_ISFIFO((home / "planted.attnfix").stat().st_mode)


def test_a_plain_rich_console_would_have_passed_them_on():
    """What the tests above rest on: rich itself leaves ESC in."""
    console = Console(file=io.StringIO(), width=80)
    console.print("\x1b[2J", markup=False)
    assert "\x1b" in console.file.getvalue()
