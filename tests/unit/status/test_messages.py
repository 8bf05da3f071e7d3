"""What a process says, when, and how often. The engines' own logging is in tests/integration/test_log.py."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading

import pytest

from attnfix.compat.arming.activation import Activation
from attnfix.compat.status import deferred_message, messages


class Heard(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.name, record.getMessage()))


@pytest.fixture
def heard():
    """What the engine's configured logging hears: a handler of the root logger, as `logging.basicConfig` makes."""
    root, handler = logging.getLogger(), Heard()
    level = root.level
    yield lambda: (root.setLevel("INFO"), root.addHandler(handler), handler.lines)[-1]
    root.removeHandler(handler)
    root.setLevel(level)
    logging.getLogger("sglang").handlers.clear()


def unconfigured() -> None:
    """No logging is set up: pytest's own handlers, which it adds when a test begins, are gone."""
    logging.getLogger().handlers.clear()


def ours(lines):
    return [line for line in lines if "attnfix" in line[1]]


def test_one_line_for_all_modules_with_the_engines_next_record(engine, heard):
    unconfigured()
    small = engine.one_target()
    activation = Activation([small, engine.one_target(id="sglang.second-fix")])
    engine.load(activation, "attention")  # no logging yet: a line said now would be lost
    lines = heard()
    assert lines == []
    logging.getLogger("sglang.srt.server").info("serving")
    logging.getLogger("sglang.srt.server").info("and on")
    (line,) = ours(lines)
    assert line[:2] == ("INFO", "sglang.attnfix") and "installed 2 fixes in sglang" in line[2]
    assert line[2].endswith(": sglang.small-fix, sglang.second-fix; ATTNFIX=0 turns all off")
    assert [name for _, name, _ in lines].count("sglang.srt.server") == 2


def test_the_listener_hides_nothing_before_and_leaves_nothing_behind(engine, heard, capsys):
    unconfigured()
    log = logging.getLogger("sglang")
    engine.load(Activation([engine.one_target()]), "attention")
    assert [type(handler).__module__ for handler in log.handlers] == [deferred_message.__name__]
    logging.getLogger("sglang.early").warning("before any logging")  # Python's handler of last resort says it
    logging.getLogger("sglang.early").info("not this")
    assert capsys.readouterr().err == "before any logging\n"
    lines = heard()
    other = Heard()
    log.addHandler(other)  # stands behind ours in the list that the logger walks through
    log.info("serving")
    assert log.handlers == [other] and len(other.lines) == 2 and len(ours(lines)) == 1
    log.info("again")
    assert len(ours(lines)) == 1


#: A server and two children that begin at once: each arms the fix, and then says so
SERVER = """
import logging, multiprocessing, os, sys
from types import SimpleNamespace
from attnfix.compat.engines import ENGINES
from attnfix.compat.status import messages, metrics, recorder
from attnfix.compat.status.fix_state import INSTALLED, FixState

def process(armed, say, ids):
    states = [FixState(SimpleNamespace(id=each, engine="sglang", switch="X"), INSTALLED, "why") for each in ids]
    kept = recorder.Recorder(lambda: states, lambda: {"server": metrics.server()})
    kept.open(ENGINES["sglang"])
    armed.wait()
    with say:
        messages.summary(ENGINES["sglang"], "0.5.9", states)

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    process(spawn.Barrier(1), say := spawn.Lock(), ["a"])
    armed = spawn.Barrier(2)
    children = [spawn.Process(target=process, args=(armed, say, ["a", "b"])) for _ in range(2)]
    [child.start() for child in children], [child.join() for child in children]
    print("PIDS", os.getpid(), *[child.pid for child in children])
"""


def test_each_fix_is_named_once_a_server_and_counted_elsewhere(tmp_path):
    (tmp_path / "serve.py").write_text(SERVER)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    for records in (tmp_path / "records", "/dev/null/none"):
        variables = {**kept, "ATTNFIX_LOG": "info", "ATTNFIX_RUN_DIR": str(records)}
        done = subprocess.run(
            [sys.executable, "serve.py"], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
        )
        pids = done.stdout.split()[1:]
        said = sorted(line.split(": ", 2)[2] for line in done.stderr.splitlines() if " installed " in line)
        if records == tmp_path / "records":
            off, (first,) = (
                "ATTNFIX=0 turns all off",
                {each for each in pids[1:] if f"process {pids[0]}, {each}" in done.stderr},
            )
            assert said == sorted([f"a; {off}", f"b; {off}; 1 as in process {pids[0]}",
                                   f"as in process {pids[0]}, {first}"])  # fmt: skip
        else:
            assert said == ["a, b; ATTNFIX=0 turns all off", "a, b; ATTNFIX=0 turns all off", "a; ATTNFIX=0 turns all off"]


def test_a_quiet_engine_hears_nothing(engine, heard):
    engine.load(Activation([engine.one_target()]), "attention")
    lines = heard()
    logging.getLogger().setLevel("WARNING")
    logging.getLogger("sglang").warning("loud")
    assert [line[2] for line in lines] == ["loud"]


def test_a_fix_that_was_disarmed_meanwhile_is_not_named(engine, heard):
    activation = Activation([engine.one_target("broken_before")])
    attention = engine.load(activation, "attention")
    assert attention.Backend().forward(2) == 4
    lines = heard()
    logging.getLogger("sglang").info("serving")
    assert ours(lines) == []


def test_with_attnfix_log_every_line_comes_at_once(engine, monkeypatch, capsys):
    monkeypatch.setenv("ATTNFIX_LOG", "info")
    log = logging.getLogger("sglang.attnfix")
    try:
        engine.load(Activation([engine.one_target()]), "attention")
        assert "installed 1 fix in sglang" in capsys.readouterr().err
    finally:
        log.handlers.clear()
        log.propagate = True
        log.setLevel(logging.NOTSET)


def test_the_first_correction_is_said_once_in_however_many_threads(engine, heard):
    lines = heard()
    attention = engine.load(Activation([engine.one_target()]), "attention")
    backend, gate = attention.Backend(), threading.Barrier(8)

    def serve():
        gate.wait()
        for _ in range(200):
            assert backend.forward(2) == 104

    threads = [threading.Thread(target=serve) for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    finally:
        sys.setswitchinterval(interval)
    said = [line[2] for line in ours(lines) if "corrected" in line[2]]
    assert said == ["attnfix: sglang.small-fix corrected its first call (3 rows): t"]


def test_a_server_that_is_left_as_it_is_hears_why_once(engine, heard):
    small = engine.one_target()
    activation = Activation([small])
    engine.load(activation, "attention")
    lines, state = heard(), activation.states[small.id]
    for _ in range(2):
        state.leave_out("subscribers read it")
    said = [line for line in ours(lines) if "corrects nothing here" in line[2]]
    assert said == [("WARNING", "sglang.attnfix", f"attnfix: {small.id} corrects nothing here: subscribers read it")]
    (row,) = activation.rows()
    assert row["state"] == "off" and row["reason"].endswith("; subscribers read it") and state.armed


def test_a_forked_child_says_its_own_first_correction(engine, heard):
    lines = heard()
    attention = engine.load(Activation([engine.one_target()]), "attention")
    attention.Backend().forward(2)
    lines.clear()
    reading, writing = os.pipe()
    if not os.fork():
        attention.Backend().forward(2)
        attention.Backend().forward(2)
        os.write(writing, repr([line[2] for line in ours(lines)]).encode())
        os._exit(0)
    os.wait()
    assert os.read(reading, 10_000).decode().count("corrected its first call") == 1
    attention.Backend().forward(2)
    assert ours(lines) == []


def test_a_broken_log_handler_costs_no_result_and_no_fix(engine, heard):
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("of the handler")

    root, broken = logging.getLogger(), Broken()
    activation = Activation([engine.one_target()])
    attention = engine.load(activation, "attention")
    heard()
    root.addHandler(broken)
    try:
        assert attention.Backend().forward(2) == 104
    finally:
        root.removeHandler(broken)
    assert activation.states["sglang.small-fix"].state == "effective"


@pytest.mark.parametrize(
    "argv, variables, level",
    [
        (["serve.py"], {}, "WARNING"),
        (["serve.py"], {"RANK": "0"}, "WARNING"),
        (["serve.py"], {"RANK": "3"}, "INFO"),
        (["/site/ray/_private/workers/default_worker.py"], {}, "INFO"),
        ([], {}, "WARNING"),
    ],
)
def test_ranks_that_are_no_children_do_not_warn_either(heard, monkeypatch, argv, variables, level):
    monkeypatch.delenv("RANK", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", argv)
    lines = heard()
    for _ in range(2):
        messages.warn("sglang", "something is wrong")
    assert lines == [(level, "sglang.attnfix", "attnfix: something is wrong")]


def test_a_spawned_child_never_warns(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import logging, multiprocessing\n"
        "def child():\n"
        "    from attnfix.compat.status import messages\n"
        "    logging.basicConfig(level='INFO', format='%(processName)s %(levelname)s %(message)s')\n"
        "    messages.warn('vllm', 'something is wrong')\n"
        "if __name__ == '__main__':\n"
        "    child()\n"
        "    process = multiprocessing.get_context('spawn').Process(target=child)\n"
        "    process.start(), process.join()\n"
    )
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True).stderr.splitlines()
    assert said == [f"{name} attnfix: something is wrong" for name in ("MainProcess WARNING", "SpawnProcess-1 INFO")]


def test_a_formatter_of_json_finds_fix_state_and_release(engine):
    """As `python-json-logger` and others print what `extra` brought."""
    records, root = [], logging.getLogger()
    handler = logging.Handler()
    handler.emit = records.append
    level = root.level
    root.addHandler(handler)
    root.setLevel("INFO")
    try:
        activation = Activation([engine.one_target("broken_before")])
        attention = engine.load(activation, "attention")
        logging.getLogger("sglang").info("serving")
        attention.Backend().forward(2)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        logging.getLogger("sglang").handlers.clear()
    told = [record.attnfix for record in records if record.name == "sglang.attnfix"]
    row = {"fix": engine.fix.id, "release": activation.states[engine.fix.id].release}
    assert json.loads(json.dumps(told)) == [
        {"engine": "sglang", "fixes": [{**row, "state": state}]} for state in ("installed", "failed")
    ]
