"""What the record of a process says of it, from the import of an engine to a fork and a disk that refuses."""

from __future__ import annotations

import importlib
import json
import os
import statistics
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


#: A process of an engine whose one target has its wrapper: `call()` calls it, `files()` counts the records
ARMED = """
from attnfix.compat.arming.activation import Activation
from attnfix.compat.status.fix_state import Event
def files():
    return len(list(process_record.folder().glob('*.attnfix')))
import vllm
from attnfix.bootstrap import process
recorder = process._activation._recorder
(state, *_) = process._activation.states.values()
def call():
    state.counters.calls += 1
def fork(work, wait=True):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    if wait:
        os.waitpid(pid, 0)
    return pid
"""


def test_a_forked_child_that_calls_nothing_leaves_no_record(run):
    assert run(ARMED + "for _ in range(5): fork(lambda: None)\nprint(files())") == "1"


def test_a_forked_child_has_a_record_from_its_first_call_on(run):
    code = ARMED + (
        "def child():\n"
        "    before = files()\n"
        "    call(), call()\n"
        "    (mine,) = [text for text in process_record.read_all() if text['pid'] == os.getpid()]\n"
        "    print(before, files(), mine['fixes'][0]['counters']['calls'], flush=True)\n"
        "fork(child)\n"
    )
    assert run(code) == "1 2 2"


@pytest.mark.parametrize("event", ["CHANGED", "DISARMED", "FIRST_CORRECTION"])
def test_a_forked_child_has_a_record_once_something_happens(run, event):
    code = (
        f"os.dup2(os.open(os.devnull, os.O_WRONLY), 2)\nfork(lambda: state._on_event(state, Event.{event}, 1))\nprint(files())"
    )
    assert run(ARMED + code) == "2"


def test_a_child_of_a_forked_child_has_a_record_of_its_own(run):
    code = ARMED + (
        "def deeper():\n"
        "    call()\n"
        "    print(sum(text['pid'] == os.getpid() for text in process_record.read_all()), flush=True)\n"
        "fork(lambda: fork(deeper))\nprint(files())\n"
    )
    assert run(code) == "1\n2"


def test_a_multiprocessing_child_is_named_after_the_fork(run):
    """The name of a forked child is set after the fork: the record has it all the same."""
    code = ARMED + (
        "def child():\n"
        "    call()\n"
        "    mine = [text for text in process_record.read_all() if text['pid'] == os.getpid()]\n"
        "    print(*[(text['role'], text['rank']) for text in mine])\n"
        "process = multiprocessing.get_context('fork').Process(target=child, name='VllmWorker-3')\n"
        "process.start(); process.join()\n"
    )
    assert run(code) == "('worker', '3')"


def test_a_forked_child_outlives_its_parent(run):
    code = ARMED + (
        "if os.fork(): os.waitpid(-1, 0)\n"
        "elif os.fork(): call(), os._exit(0)\n"  # the middle one is the parent that has ended
        "else:\n"
        "    time.sleep(0.2)\n"
        "    call()\n"
        "    print(sorted(text['alive'] for text in process_record.read_all()), flush=True)\n"
        "    os._exit(0)\n"
        "time.sleep(1)\n"
    )
    assert run(code) == "[True, True]", "that of the middle one told of nothing"


def test_a_forked_child_without_a_record_is_shown_as_its_parent_with_nothing_counted(run):
    code = ARMED + (
        "from attnfix.cli import status\n"
        "call()\n"
        "pid = fork(lambda: time.sleep(20), wait=False)\n"
        "time.sleep(0.3)\n"
        "told = status.collect(expect=False)\n"
        "(child,) = [each for each in told['processes'] if each['pid'] == pid]\n"
        "print(child['alive'], child['fixes'][0]['counters'], files(), told['unrecorded'], status.readiness(told)[0])\n"
        "os.kill(pid, 9)\n"
    )
    # Asked by the parent itself, which is not among those that it looks for
    assert run(code) == "True {'calls': 0, 'corrections': 0, 'rows': 0} 1 [] 0"


def test_a_forked_child_whose_parents_record_is_gone_is_shown_as_its_parent_or_active(run):
    """As a server that goes into the background: the next process that starts removes what told of nothing."""
    code = ARMED + (
        "from pathlib import Path\n"
        "from attnfix.cli import status\n"
        "from attnfix.compat.status import unpatched_processes\n"
        "pid = fork(lambda: time.sleep(20), wait=False)\n"
        "recorder._record.path.unlink()\n"
        "unpatched_processes._STARTING_S = 0\n"
        "unpatched_processes._loaded = lambda *args: 'vllm'\n"
        "(child,) = [row for row in unpatched_processes.without_record({'vllm': Path('vllm')}, []) if row['pid'] == pid]\n"
        "(shown,) = [row for row in status.collect(expect=False)['processes'] if row['pid'] == pid]\n"
        "print(child['state'], shown['engine'], shown['removed'])\n"
        "os.kill(pid, 9)\n"
    )
    assert run(code) == "active vllm False"


def test_a_fork_takes_at_most_two_milliseconds_longer(tmp_path, run):
    """Two processes in turn, one of them stock: the median of the differences, in CPU time of both parent and child.

    Both are of one size, since a fork copies the tables of all that is mapped: an engine has a hundred times as much.
    """
    code = (
        "import os, resource, sys, vllm\n"
        "import attnfix.patches.vllm.catalogue, attnfix.bootstrap.process, attnfix.compat.arming.activation\n"
        "def spent():\n"
        "    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))\n"
        "    return sum(each.ru_utime + each.ru_stime for each in both)\n"
        "for _ in sys.stdin:\n"
        "    begin = spent()\n"
        "    pid = os.fork() or os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "    print(spent() - begin, flush=True)\n"
    )
    pair = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "ATTNFIX": value}, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for value in ("0", "")
    ]  # fmt: skip

    def one(process):
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    figures = [(one(pair[0]), one(pair[1])) for _ in range(60)][10:]
    for process in pair:
        process.communicate()
    longer = statistics.median(patched - stock for stock, patched in figures)
    print(f"stock {statistics.median(stock for stock, _ in figures) * 1e3:.2f} ms, patched {longer * 1e3:+.2f} ms")
    assert longer < 0.002 and len(list((tmp_path / "run").glob("*.attnfix"))) == 1, "one is patched"


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
