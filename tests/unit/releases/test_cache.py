"""A fetched release is run: what lies in the cache is held to what was fetched, each time that a process takes it."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest

from attnfix.compat.releases import fetch as releases
from attnfix.compat.releases.fetch import ReleaseError, fetch
from tests.support.local_index import wheel
from tests.unit.releases.test_fetch import cache, forget, server  # noqa: F401  # fixtures

ANOTHER = 12345
CODE = "sglang/srt/layers/attention.py"


@pytest.fixture
def fetched(server):  # noqa: F811
    """The folder of a release that an earlier process has fetched."""
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    folder = fetch("sglang", "1.0")
    forget()
    return folder


def give_away(path, monkeypatch):
    if os.getuid() == 0:
        os.chown(path, ANOTHER, -1, follow_symlinks=False)
    else:  # only root can
        pytest.skip("only root can give a file away")


def bytecode(folder, name="attention.cpython-311.pyc"):
    path = folder / "sglang/srt/layers/__pycache__" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"compiled")
    return path


def spoil(folder, how, monkeypatch):
    path = folder / CODE
    if how == "changed":
        stamp = path.stat()
        path.write_bytes(b"#" * stamp.st_size)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    elif how == "missing":
        path.unlink()
    elif how == "added":
        (folder / "sitecustomize.py").write_text("import os")
    elif how == "added among the bytecode":
        bytecode(folder, "attention.py")
    elif how == "bytecode without source":
        (folder / "sglang" / "extra.pyc").write_bytes(b"")
    elif how == "link":
        path.rename(folder.parent / "elsewhere.py")
        path.symlink_to(folder.parent / "elsewhere.py")
    elif how == "linked folder":
        path.parent.rename(folder.parent / "elsewhere")
        path.parent.symlink_to(folder.parent / "elsewhere")
    elif how == "fifo":
        path.unlink()
        os.mkfifo(path)
    elif how == "record":
        (record,) = folder.glob("*.dist-info/RECORD")
        record.write_text(re.sub(rf"(?m)^{CODE},.*\n", "", record.read_text()))
    elif how == "fifo for a record":
        (record,) = folder.glob("*.dist-info/RECORD")
        record.unlink()
        os.mkfifo(record)
    elif how == "nested source":
        (folder / "SOURCE.json").write_text("[" * 100_000)
    elif how == "owner":
        give_away(path, monkeypatch)
    elif how == "owner of the folder":
        give_away(folder, monkeypatch)
    elif how == "owner of bytecode":
        give_away(bytecode(folder), monkeypatch)


HOW = ("changed", "missing", "added", "added among the bytecode", "bytecode without source", "link", "linked folder", "fifo",
       "record", "fifo for a record", "nested source", "owner", "owner of the folder", "owner of bytecode")  # fmt: skip


@pytest.mark.parametrize("how", HOW)
def test_what_is_not_as_it_was_fetched_is_fetched_anew(fetched, server, how, monkeypatch, caplog):  # noqa: F811
    good = (fetched / CODE).read_bytes()
    spoil(fetched, how, monkeypatch)
    assert fetch("sglang", "1.0") == fetched
    assert (fetched / CODE).read_bytes() == good and not (fetched / CODE).is_symlink()
    assert sorted(path.name for path in fetched.iterdir()) == ["SOURCE.json", "sglang", "sglang-1.0.dist-info"]
    assert fetched.stat().st_uid == (fetched / CODE).stat().st_uid == os.getuid()
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"{fetched} is fetched anew: ") and line.isprintable()
    before = len(server.requests)
    forget()
    fetch("sglang", "1.0")
    assert len(server.requests) == before, "it is whole again"


@pytest.mark.parametrize("how", ["changed", "owner"])
def test_without_a_network_it_is_not_run(fetched, server, how, monkeypatch):  # noqa: F811
    spoil(fetched, how, monkeypatch)
    server.down = True
    with pytest.raises(ReleaseError, match="HTTP 500"):
        fetch("sglang", "1.0")


def test_what_python_compiled_there_is_left(fetched, server):  # noqa: F811
    compiled = bytecode(fetched)
    bytecode(fetched, "attention.cpython-311.pyc.140234")  # as it is called while it is written
    before = len(server.requests)
    assert fetch("sglang", "1.0") == fetched and compiled.exists()
    assert len(server.requests) == before


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_cache_that_others_can_write_to_is_refused(fetched, mode):
    fetched.parent.chmod(mode)
    with pytest.raises(ReleaseError, match=r"^The cache .*releases can be written by others: .*ATTNFIX_CACHE_DIR"):
        fetch("sglang", "1.0")


def test_a_cache_of_another_user_is_refused(fetched, monkeypatch):
    give_away(fetched.parent, monkeypatch)
    with pytest.raises(ReleaseError, match=r"^The cache .*releases belongs to another user: .*ATTNFIX_CACHE_DIR"):
        fetch("sglang", "1.0")


def test_so_is_one_that_is_empty(cache, server):  # noqa: F811
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(ReleaseError, match="can be written by others"):
        fetch("sglang", "1.0")


def test_a_cache_that_is_shared_with_readers_is_held_to_modes_inside(fetched, server):  # noqa: F811
    """Closed, as we make it, nobody else comes to what is inside, whatever the umask was."""
    (fetched / CODE).chmod(0o666)
    before = len(server.requests)
    fetch("sglang", "1.0")
    assert len(server.requests) == before
    forget()
    fetched.parent.chmod(0o755)
    fetch("sglang", "1.0")
    assert len(server.requests) > before and (fetched / CODE).stat().st_mode & 0o022 == 0


def test_a_process_looks_once(fetched, monkeypatch):
    fetch("sglang", "1.0")
    shutil.rmtree(fetched / "sglang" / "srt")
    assert fetch("sglang", "1.0") == fetched


def test_a_cache_of_an_earlier_attnfix_needs_no_fetch(fetched, server):  # noqa: F811
    """Its RECORD has the hashes already."""
    assert json.loads((fetched / "SOURCE.json").read_text())["layout"] == releases.LAYOUT == 1
    before = len(server.requests)
    fetch("sglang", "1.0")
    assert len(server.requests) == before
