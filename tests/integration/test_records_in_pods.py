"""Records in the volumes that Kubernetes makes, as the users that its pods run as: made here by owner and mode (emulated)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from attnfix.compat.status import process_record

NOBODY, ANOTHER = 65534, 12345
#: What an `emptyDir` is: without fsGroup, with it, and a mounted folder that everyone may write to
VOLUMES = {"emptyDir": (0, 0, 0o2777), "fsGroup": (0, NOBODY, 0o2777), "sticky": (0, 0, 0o1777)}
ENGINE = "import sys, vllm; print('up', flush=True); sys.stdin.read()"
#: A root file system that nobody can write to, with the volumes mounted over it
READ_ONLY = 'mount --bind "$0" "$0"; mount -o remount,ro,bind /; exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def volume():
    """Where other users can reach it, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "site" / "vllm").mkdir(parents=True)
        (Path(folder) / "site" / "vllm" / "__init__.py").touch()
        (Path(folder) / "run").mkdir()
        yield Path(folder) / "run"


def variables(volume, folder=None):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    return plain | {
        "ATTNFIX_RUN_DIR": str(volume if folder is None else folder),
        "PYTHONPATH": str(volume.parent / "site"),
        "HOME": "/nonexistent",
    }


def as_user(user):
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


@pytest.fixture
def engine(volume):
    """`engine(before, folder)`: a process that has imported an engine, and what it said."""
    running = []

    def start(before, folder=None):
        command = [*before, sys.executable, "-c", ENGINE]
        process = subprocess.Popen(command, env=variables(volume, folder), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        running.append(process)
        assert process.stdout.readline() == "up\n", process.stderr.read()
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def status(volume, before, *words, folder=None):
    command = [*before, sys.executable, "-m", "attnfix", "status", "--json", *words]
    done = subprocess.run(command, env=variables(volume, folder), capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def made(volume, kind):
    owner, group, mode = VOLUMES[kind]
    os.chown(volume, owner, group)
    volume.chmod(mode)


@pytest.mark.parametrize("kind", VOLUMES)
def test_a_pod_that_is_not_roots_becomes_ready(volume, engine, kind):
    made(volume, kind)
    process = engine(as_user(NOBODY))
    code, told = status(volume, as_user(NOBODY), "--ready")
    assert code == 0 and told["ready"], told
    (seen,) = status(volume, as_user(NOBODY))[1]["processes"]
    assert seen["pid"] == process.pid and seen["alive"]
    process.communicate()
    assert process.stderr.closed or not process.stderr.read()


def test_users_of_one_volume_do_not_see_or_hinder_each_other(volume, engine):
    made(volume, "emptyDir")
    processes = {user: engine(as_user(user)) for user in (NOBODY, ANOTHER)}
    for user, process in processes.items():
        assert [seen["pid"] for seen in status(volume, as_user(user))[1]["processes"]] == [process.pid]
    assert {path.stat().st_mode & 0o777 for path in volume.iterdir()} == {0o700}
    code, told = status(volume, [], "--ready")  # root is shown where they are, and believes nobody who could forge them
    assert code == 1 and all(f"attnfix-{user}" in told["reason"] for user in processes), told
    code, told = status(volume, [], "--ready", folder=volume / f"attnfix-{NOBODY}")
    assert code == 0, "the operator has named it"


def test_a_root_file_system_that_nobody_can_write_to(volume, engine):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("unshare makes no namespaces on this machine")
    made(volume, "emptyDir")
    before = ["unshare", "--mount", "sh", "-ec", READ_ONLY, str(volume)]
    engine(before)
    assert status(volume, before, "--ready")[0] == 0
    code, told = status(volume, before, "--ready", folder="")  # no volume at all
    assert code == 1 and "/tmp/attnfix-65534" in told["reason"], told


@pytest.mark.parametrize("fault", ["owner", "mode", "link"])
def test_a_subfolder_that_somebody_else_made_first_is_not_used(volume, engine, fault):
    made(volume, "emptyDir")
    mine = volume / f"attnfix-{NOBODY}"
    (elsewhere := volume.parent / "elsewhere").mkdir()
    os.chown(elsewhere, NOBODY, NOBODY)
    if fault == "link":
        mine.symlink_to(elsewhere)
    else:
        mine.mkdir()
        os.chown(mine, ANOTHER if fault == "owner" else NOBODY, 0)
        mine.chmod(0o777)
    process = engine(as_user(NOBODY))
    said = process.communicate()[1]
    assert "no process record" in said and str(mine) in said
    assert not list(mine.iterdir()) and not list(elsewhere.iterdir())
    told = status(volume, as_user(NOBODY))[1]
    assert not told["processes"] and any(str(mine) in sentence for sentence in told["warnings"])


def test_a_record_that_another_user_leaves_in_our_name_is_not_believed(volume, engine):
    """The folder is everyone's: another user may make a subfolder that is called as that of whoever has none yet."""
    made(volume, "emptyDir")
    engine(as_user(ANOTHER))
    (volume / f"attnfix-{ANOTHER}").rename(volume / f"attnfix-{NOBODY}")
    assert status(volume, as_user(NOBODY))[1]["processes"] == []
    for path in (volume / f"attnfix-{NOBODY}").iterdir():
        shutil.copy(path, volume / path.name)
        os.chown(volume / path.name, ANOTHER, ANOTHER)
    assert status(volume, as_user(NOBODY))[1]["processes"] == []


def test_a_folder_that_refuses_is_named_with_both_owners(volume, engine):
    os.chown(volume, ANOTHER, ANOTHER)
    volume.chmod(0o755)
    said = engine(as_user(NOBODY)).communicate()[1]
    assert str(volume) in said and f"user {ANOTHER}" in said and f"user {NOBODY}" in said
    time.sleep(0.1)
    code, told = status(volume, as_user(NOBODY), "--ready")
    assert code == 1 and str(volume) in told["reason"] and f"user {ANOTHER}" in told["reason"]


def test_a_user_has_a_name_in_sentences():
    assert [process_record.user(number) for number in (0, 7)] == ["root", "user 7"]
