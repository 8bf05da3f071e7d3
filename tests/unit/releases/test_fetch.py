"""Fetching releases, against an index on the loopback: nothing here leaves the machine."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from importlib.metadata import distributions
from pathlib import Path

import pytest

from attnfix.compat.releases import fetch as releases
from attnfix.compat.releases import pip_config
from attnfix.compat.releases.fetch import MissingExtra, ReleaseError, fetch, published
from tests.support.local_index import Server, sdist, wheel

KEPT = ["__init__.py", "srt/configs/small.json", "srt/layers/attention.py"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "0",
        "PIP_TIMEOUT": "10",
        "NO_PROXY": "127.0.0.1",
        "ATTNFIX_CACHE_DIR": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pip_config, "_listed_by_pip", lambda: None)  # asking pip takes half a second
    forget()
    yield tmp_path / "cache" / "releases"
    forget()


@pytest.fixture
def server(cache, monkeypatch):
    server = Server()
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    yield server
    server.stop()


def forget() -> None:
    pip_config.read.cache_clear()
    releases._asked.clear()
    releases._whole.clear()


def check_layout(folder: Path, engine: str, kind: str) -> None:
    package = folder / engine
    assert sorted(str(p.relative_to(package)) for p in package.rglob("*") if p.is_file()) == KEPT
    (found,) = distributions(path=[str(folder)])
    assert (found.metadata["Name"], found.version) == (engine, "1.0")
    assert [point.name for point in found.entry_points] == ["x"]
    assert found.read_text("INSTALLER") == "attnfix\n"
    assert all(file.locate().is_file() for file in found.files)
    for file in found.files:
        if file.hash:
            digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
            assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
    assert json.loads((folder / "SOURCE.json").read_text())["kind"] == kind


def nothing_left(cache: Path) -> bool:
    return not cache.exists() or not list(cache.iterdir())


def test_published_is_sorted_and_without_prereleases(server):
    for release in ("0.10.0", "0.9.0", "0.9.0.post1", "1.0rc1", "1.0.dev3"):
        server.add(f"sglang-{release}-py3-none-any.whl", b"")
    server.add("sglang-0.10.0.tar.gz", b"")
    assert list(map(str, published("sglang"))) == ["0.9.0", "0.9.0.post1", "0.10.0"]
    published("sglang")
    assert len(server.requests) == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_wheel(server, cache, as_json, capsys):
    server.as_json = as_json
    server.add("sglang-1.0-cp39-cp39-win32.whl", wheel())  # any tags
    server.add("sglang-1.0.tar.gz", b"not looked at")
    folder = fetch("sglang", "v1.0")
    assert folder == cache / "sglang-1.0"
    check_layout(folder, "sglang", "wheel")
    assert [path.name for path in cache.iterdir()] == ["sglang-1.0"]  # no archive, no temporary folder
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("prefix", ["", "python/", "src/"])
def test_sdist_where_the_wheel_is_large(server, monkeypatch, prefix):
    monkeypatch.setattr(releases, "SMALL", 100_000)
    server.add("vllm-1.0-cp38-abi3-manylinux1_x86_64.whl", wheel("vllm", padding=200_000))
    server.add("vllm-1.0.tar.gz", sdist(prefix=prefix))
    check_layout(fetch("vllm", "1.0"), "vllm", "sdist")
    assert "vllm-1.0-cp38-abi3-manylinux1_x86_64.whl" not in server.sent


LARGE = "vllm-1.0-cp38-abi3-manylinux1_x86_64.whl"


@pytest.fixture
def large(server, monkeypatch):
    """Adds a wheel of 12 MiB that is too large to fetch whole, and nothing else."""
    monkeypatch.setattr(releases, "SMALL", 1 << 20)

    def add(**changes):
        server.add(LARGE, wheel("vllm", padding=12 << 20, **changes))

    return add


def test_ranges_of_a_large_wheel(server, large):
    large(extra={"vllm/z_after.py": b"late = 1\n", "other/__init__.py": b""})
    folder = fetch("vllm", "1.0")
    assert (folder / "vllm/z_after.py").read_bytes() == b"late = 1\n"
    assert not (folder / "other").exists()
    (folder / "vllm/z_after.py").unlink()
    assert sorted(p.name for p in folder.iterdir()) == ["SOURCE.json", "vllm", "vllm-1.0.dist-info"]
    asked = [span for method, path, span in server.requests if method == "GET" and LARGE in path]
    assert None not in asked and len(asked) <= 3
    assert server.sent[LARGE] < 2 << 20


def test_a_server_that_refuses_head_is_asked_for_ranges_alone(server, large):
    large()
    server.no_head = server.as_json = True  # such a page names the sizes
    check_layout(fetch("vllm", "1.0"), "vllm", "ranges")


def test_ranges_layout(large):
    large()
    check_layout(fetch("vllm", "1.0"), "vllm", "ranges")


def test_a_range_that_breaks_off_is_asked_for_again(server, large, cache, monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "1")
    large()
    server.cut = 1
    check_layout(fetch("vllm", "1.0"), "vllm", "ranges")
    assert [path.name for path in cache.iterdir()] == ["vllm-1.0"]


@pytest.mark.parametrize("tail", [100, 700])
def test_a_table_of_contents_and_a_record_of_any_size(large, monkeypatch, tail):
    """The end that is read first may hold neither of them whole."""
    monkeypatch.setattr("attnfix.compat.releases.index.TAIL", tail)
    large()
    check_layout(fetch("vllm", "1.0"), "vllm", "ranges")


def test_a_server_without_ranges_is_not_made_to_send_all(server, large):
    large()
    server.no_ranges = True
    with pytest.raises(ReleaseError, match=r"answers no range requests, and vllm-1.0-.*whl is too large"):
        fetch("vllm", "1.0")


@pytest.mark.parametrize("recorded", [b"something else", None])
def test_a_file_that_is_not_the_one_in_record(large, cache, recorded):
    large(record={"vllm/srt/layers/attention.py": recorded})
    with pytest.raises(ReleaseError, match=r"attention.py in the wheel of vllm 1.0 does not match the wheel's RECORD"):
        fetch("vllm", "1.0")
    assert nothing_left(cache)


def test_wrong_sha256(server, cache):
    server.add("sglang-1.0-py3-none-any.whl", wheel(), sha256="0" * 64)
    with pytest.raises(ReleaseError, match=r"The sha256 of sglang-1.0-py3-none-any.whl is not the one"):
        fetch("sglang", "1.0")
    assert nothing_left(cache)


@pytest.mark.parametrize("name", ["sglang-1.0-py3-none-any.whl", "sglang-1.0.tar.gz"])
def test_damaged_archives(server, cache, name):
    body = wheel() if name.endswith(".whl") else sdist("sglang")
    server.add(name, body[: len(body) // 2] + b"#" * 40)
    with pytest.raises(ReleaseError, match=f"{re.escape(name)} is damaged"):
        fetch("sglang", "1.0")
    assert nothing_left(cache)


def test_an_archive_without_the_engine(server, cache):
    server.add("sglang-1.0-py3-none-any.whl", wheel(files={}))
    with pytest.raises(ReleaseError, match=r"holds no package sglang"):
        fetch("sglang", "1.0")
    assert nothing_left(cache)


@pytest.mark.parametrize("name", ["../escaped.py", "/tmp/escaped.py", "sglang/../../escaped.py", "sglang\\..\\escaped.py"])
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_paths_that_leave_the_folder(server, cache, kind, name):
    if kind == "wheel":
        server.add("sglang-1.0-py3-none-any.whl", wheel(extra={name: b""}))
    else:
        server.add("sglang-1.0.tar.gz", sdist("sglang", extra={name: b""}))
    with pytest.raises(ReleaseError, match=r"unsafe path"):
        fetch("sglang", "1.0")
    assert nothing_left(cache)
    assert not list(cache.parent.parent.rglob("escaped.py"))


def test_links_in_a_source_archive_are_left_out(server):
    body = io.BytesIO(sdist("sglang"))
    out = io.BytesIO()
    with tarfile.open(fileobj=body) as old, tarfile.open(fileobj=out, mode="w:gz") as new:
        for member in old.getmembers():
            new.addfile(member, old.extractfile(member))
        link = tarfile.TarInfo("sglang-1.0/sglang/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        new.addfile(link)
    server.add("sglang-1.0.tar.gz", out.getvalue())
    assert not os.path.lexists(fetch("sglang", "1.0") / "sglang/link.py")


def test_files_above_the_limit_are_left_out(server):
    server.add("sglang-1.0-py3-none-any.whl", wheel(extra={"sglang/table.json": b" " * (2 << 20) + b"1"}))
    assert not (fetch("sglang", "1.0") / "sglang/table.json").exists()


def test_a_broken_connection_is_tried_again(server, monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "2")
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    server.cut = 2
    check_layout(fetch("sglang", "1.0"), "sglang", "wheel")


@pytest.mark.parametrize("which", ["small", "large"])
def test_an_interrupted_download_leaves_nothing(server, large, cache, which):
    large() if which == "large" else server.add("vllm-1.0.tar.gz", sdist())
    server.cut = 1
    with pytest.raises(ReleaseError):
        fetch("vllm", "1.0")
    assert nothing_left(cache)
    fetch("vllm", "1.0")


def test_unpublished_and_unknown(server):
    for release in ("0.5.9", "0.5.10", "0.5.11", "0.5.12rc1"):
        server.add(f"sglang-{release}-py3-none-any.whl", b"")
    for release, sentence in {
        "0.5.10.post9": "sglang 0.5.10.post9 is not published: nearest are 0.5.10 and 0.5.11, newest is 0.5.11.",
        "0.6": "sglang 0.6 is not published: nearest is 0.5.11, newest is 0.5.11.",
        "latest": "'latest' is not a release number such as 0.5.10.post1.",
    }.items():
        with pytest.raises(ReleaseError) as caught:
            fetch("sglang", release)
        assert str(caught.value) == sentence
    with pytest.raises(ReleaseError, match=r"^Unknown engine 'tgi': attnfix knows sglang and vllm.$"):
        fetch("tgi", "1.0")
    with pytest.raises(ReleaseError, match=r"^The package index has no project vllm.$"):
        fetch("vllm", "1.0")


def test_no_network(cache, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple/")
    for call in (lambda: published("sglang"), lambda: fetch("sglang", "1.0")):
        with pytest.raises(ReleaseError) as caught:
            call()
        assert str(caught.value) == "Cannot reach the package index at 127.0.0.1:9: is there a network?"
        assert "secret" not in repr(caught.value.__cause__) + repr(pip_config.read())
    assert nothing_left(cache)


def test_an_index_that_fails(server):
    server.down = True
    with pytest.raises(ReleaseError, match=r"^HTTP 500 from the package index at 127.0.0.1:[0-9]+.$"):
        published("sglang")


def test_no_room_or_no_right_to_write(server, cache, monkeypatch):
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(ReleaseError, match=r"^Cannot write to the cache .*cache/releases: "):
        fetch("sglang", "1.0")
    cache.parent.unlink()

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ReleaseError, match=r"^No space left in .*cache/releases: make room, or set ATTNFIX_CACHE_DIR.$"):
        fetch("sglang", "1.0")
    assert nothing_left(cache)


def test_the_second_fetch_needs_no_network(server):
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    folder = fetch("sglang", "1.0")
    before, server.down = len(server.requests), True
    forget()
    assert fetch("sglang", "1.0") == folder
    assert len(server.requests) == before


def test_a_cached_folder_that_is_not_whole_is_fetched_anew(server):
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    folder = fetch("sglang", "1.0")
    (folder / "SOURCE.json").write_text("{")
    (folder / "sglang/__init__.py").unlink()
    forget()
    check_layout(fetch("sglang", "1.0"), "sglang", "wheel")


def test_two_processes_at_once(server, cache):
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    server.together = threading.Barrier(2)  # neither gets the wheel before the other has asked for it
    program = "from attnfix.compat.releases.fetch import fetch; print(fetch('sglang', '1.0'))"
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=60)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert printed == [str(cache / "sglang-1.0")] * 2
    assert [path.name for path in cache.iterdir()] == ["sglang-1.0"]
    check_layout(cache / "sglang-1.0", "sglang", "wheel")


@pytest.mark.parametrize("package", ["pypi_simple", "requests"])
def test_without_the_extra(server, monkeypatch, package):
    for name in [
        name
        for name in sys.modules
        if name.startswith(("attnfix.compat.releases.index", "attnfix.compat.releases.pip_session"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r'^Fetching a release needs .*: pip install "attnfix\[cpu\]"$'):
        fetch("sglang", "1.0")


def test_without_platformdirs(server, monkeypatch):
    monkeypatch.delenv("ATTNFIX_CACHE_DIR")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(MissingExtra, match=r"needs platformdirs"):
        fetch("sglang", "1.0")


def test_importing_needs_no_extra():
    program = (
        "import sys; import attnfix.compat.releases.fetch;"
        "print({'requests', 'pypi_simple', 'remotezip', 'platformdirs', 'rich', 'torch'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


def test_progress_goes_to_stderr(server, capsys):
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    fetch("sglang", "1.0", progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "sglang 1.0" in err


def test_local_indexes_and_folders(server, tmp_path, monkeypatch):
    """Local places that lack the project are passed over; those that have it are used, ranges included."""
    (tmp_path / "empty").mkdir()
    project = tmp_path / "index/vllm"
    project.mkdir(parents=True)
    monkeypatch.setattr(releases, "SMALL", 1 << 20)
    (project / LARGE).write_bytes(wheel("vllm", padding=12 << 20))
    (project / "index.html").write_text(f'<a href="{LARGE}">{LARGE}</a>')
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/sglang-1.0-py3-none-any.whl").write_bytes(wheel())
    (tmp_path / "wheels/notes.txt").write_text("")
    index = (tmp_path / "index").as_uri()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{(tmp_path / 'empty').as_uri()} {tmp_path.as_uri()}/gone {index}")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path}/gone {tmp_path}/wheels")
    check_layout(fetch("vllm", "1.0"), "vllm", "ranges")
    check_layout(fetch("sglang", "1.0"), "sglang", "wheel")
    assert not server.sent


def test_the_first_index_that_has_a_release_is_used(server, monkeypatch):
    second = Server()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", second.url)
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    second.add("sglang-1.0-py3-none-any.whl", b"another")
    second.add("sglang-2.0-py3-none-any.whl", wheel(release="2.0"))
    check_layout(fetch("sglang", "1.0"), "sglang", "wheel")
    fetch("sglang", "2.0")
    assert list(map(str, published("sglang"))) == ["1.0", "2.0"]
    assert list(second.sent) == ["sglang-2.0-py3-none-any.whl"]
    second.stop()


def test_an_archive_of_many_files_is_not_unpacked_without_end(server, cache, monkeypatch):
    monkeypatch.setattr("attnfix.compat.releases.unpack.MAX_PACKAGE", 100)
    server.add("sglang-1.0-py3-none-any.whl", wheel(extra={f"sglang/{number}.py": b"#" * 60 for number in range(3)}))
    with pytest.raises(ReleaseError, match="holds more than"):
        fetch("sglang", "1.0")
    assert nothing_left(cache)


def test_the_cache_is_its_owners_alone(server, cache):
    server.add("sglang-1.0-py3-none-any.whl", wheel())
    before = os.umask(0)
    try:
        fetch("sglang", "1.0")
    finally:
        os.umask(before)
    assert cache.stat().st_mode & 0o077 == 0
