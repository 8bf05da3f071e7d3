"""What the record of a process says of it, from the import of an engine to a fork and a disk that refuses."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

import attnfix
from attnfix.compat.arming.activation import Activation
from attnfix.compat.status import messages, process_record, process_role
from attnfix.compat.status.recorder import fixset


def told(activation):
    """What the record of this process says. Not by pid: the activations of other tests have records in a forked child, too."""
    return process_record.read(activation._recorder._record.path)


def in_child(work):
    """What `work()` returns in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def test_a_process_that_has_only_imported_the_package_is_dormant(engine):
    activation = Activation([engine.fix])
    importlib.import_module("sglang")
    activation.module_loaded("sglang")
    (text,) = process_record.read_all()
    assert (text["engine"], text["role"], text["attnfix"]) == ("sglang", process_role.UNKNOWN, attnfix.__version__)
    assert [row["state"] for row in text["fixes"]] == ["dormant"]
    assert text["activated"] > 1e9 and text["fixset"] == fixset(attnfix.__version__, [])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(code)`: standard output of a fresh process in which small packages `sglang` and `vllm` can be imported."""
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, body in (("sglang", "import vllm\n"), ("vllm", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(body)

    def run(code):
        code = "import multiprocessing, os, time\nfrom attnfix.compat.status import process_record\n" + code
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert not done.stderr
        return done.stdout.strip()

    return run


def test_an_engine_that_imports_the_other_is_the_engine(run):
    assert run("import sglang\nprint(*[text['engine'] for text in process_record.read_all()])") == "sglang"
    assert run("import vllm\nprint(*[text['engine'] for text in process_record.read_all() if text['alive']])") == "vllm"


def test_the_fix_set_names_what_is_armed(engine):
    one, other = Activation([engine.one_target()]), Activation([engine.one_target()])
    before = fixset("1", one.states.values())
    engine.load(one, "attention")
    assert fixset("1", one.states.values()) != before == fixset("1", other.states.values())
    engine.load(other, "attention")
    assert fixset("1", one.states.values()) == fixset("1", other.states.values()) != fixset("2", one.states.values())
    assert told(one)["fixset"] == fixset(attnfix.__version__, one.states.values())


def test_a_forked_child_has_its_own_record_and_counts_from_zero(engine):
    activation = Activation([engine.one_target()])
    backend = engine.load(activation, "attention").Backend()
    backend.forward(1)

    def child():
        backend.forward(1)
        backend.forward(1)
        return told(activation), os.getpid()

    parents = activation._recorder._record.path
    of_child, pid = in_child(child)
    of_parent = told(activation)
    assert (of_child["pid"], of_parent["pid"]) == (pid, os.getpid())
    assert [text["fixes"][0]["counters"]["calls"] for text in (of_child, of_parent)] == [2, 1]
    assert of_child["fixset"] == of_parent["fixset"] and of_child["activated"] > of_parent["activated"]
    assert activation._recorder._record.path == parents
    assert {text["pid"]: text["alive"] for text in process_record.read_all()} == {os.getpid(): True, pid: False}


def test_a_multiprocessing_child_is_named_after_the_fork(run):
    """The name of a forked child is set after the fork: the record has it all the same."""
    code = (
        "import vllm\n"
        "def child():\n"
        "    mine = [text for text in process_record.read_all() if text['pid'] == os.getpid()]\n"
        "    print(*[(text['role'], text['rank']) for text in mine])\n"
        "process = multiprocessing.get_context('fork').Process(target=child, name='VllmWorker-3')\n"
        "process.start(); process.join()\n"
    )
    assert run(code) == "('worker', '3')"


def test_a_forked_child_outlives_its_parent(run):
    code = (
        "import vllm\n"
        "if os.fork(): os.waitpid(-1, 0)\n"
        "elif os.fork(): os._exit(0)\n"  # the middle one is the parent that has ended
        "else:\n"
        "    time.sleep(0.2)\n"
        "    print(sorted(text['alive'] for text in process_record.read_all()), flush=True)\n"
        "    os._exit(0)\n"
        "time.sleep(1)\n"
    )
    assert run(code) == "[False, True, True]"


@pytest.mark.parametrize("folder", ["/proc/attnfix", "/dev/null/attnfix"])
def test_a_disk_that_refuses_is_one_warning(engine, monkeypatch, caplog, folder):
    monkeypatch.setenv("ATTNFIX_RUN_DIR", folder)
    activation = Activation([engine.fix])
    module = engine.load(activation, "attention", "planning")
    assert module.plan(1) == 1002, "the fix is installed all the same"
    assert [line.levelname for line in caplog.records if "no process record" in line.message] == ["WARNING"]
    assert in_child(lambda: module.plan(1)) == 1002


def test_a_disk_without_locks_is_one_warning(engine, monkeypatch, caplog):
    def refused(*args):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(process_record.fcntl, "flock", refused)
    engine.load(Activation([engine.fix]), "attention", "planning")
    assert [line.levelname for line in caplog.records if "no lock" in line.message] == ["WARNING"]
    assert [text["alive"] for text in process_record.read_all()] == [True]


def test_nothing_is_said_again_in_a_forked_child(engine, monkeypatch):
    activation = Activation([engine.fix])
    engine.load(activation, "attention", "planning")
    said = []
    monkeypatch.setattr(messages, "_once", lambda *line: said.append(line))
    assert in_child(lambda: len(said)) == 0
