"""Statements that order something are found in a module, and can be left out one at a time."""

import builtins
import importlib.util
from contextlib import nullcontext

import pytest

from scripts.order_removals import Sites, apart, instrument

TEXT = """
class Worker:
    def __init__(self, log):
        self.log, self.lock = log, log

    def work(self, stream, event):
        stream.wait_event(event)
        with self.lock:
            self.log.append("work")
        if event.query():
            self.log.append("done")
        assert event.query()
        self.stop_event.wait()

def launch(stream):
    stream.synchronize()
"""


class Log(list):
    stop_event = property(lambda self: self)

    def __enter__(self):
        self.append("lock")

    def __exit__(self, *error):
        pass

    def __getattr__(self, name):
        return lambda *_: self.append(name)


@pytest.fixture
def sites(tmp_path, monkeypatch):
    file = tmp_path / "toy.py"
    file.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("toy", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = Sites()
    monkeypatch.setattr(builtins, "__order_keeps__", found.keeps, raising=False)
    monkeypatch.setattr(builtins, "__order_nothing__", nullcontext, raising=False)
    instrument(module, found)
    found.module = module
    return found


def ran(sites, removed=0):
    sites.removed, log = removed, Log()
    worker = sites.module.Worker(log)
    worker.stop_event = Log()
    try:
        worker.work(log, log)
    except AssertionError:
        log.append("asserted")
    sites.module.launch(log)
    return [*log]


def test_each_statement_that_orders_is_a_site(sites):
    texts = [name.partition(": ")[2] for name in sites.named.values()]
    assert texts == [
        "stream.wait_event(event)", "self.lock", "event.query()", "event.query() (asserted)", "stream.synchronize()",
    ]  # fmt: skip


def test_all_are_kept_and_one_is_left_out(sites):
    whole = ran(sites)
    assert whole == ["wait_event", "lock", "work", "query", "query", "asserted", "synchronize"]
    assert sites.ran == {*sites.named}
    assert ran(sites, 1) == whole[1:]
    assert ran(sites, 2) == [one for one in whole if one != "lock"]
    assert "done" in ran(sites, 3) and "asserted" not in ran(sites, 4)
    assert "synchronize" not in ran(sites, 5)


def test_what_runs_apart_changes_nothing_here():
    seen = []
    assert apart(lambda: seen.append(1) or [1, "a"]) == [1, "a"]
    assert seen == []


def test_a_process_that_ends_early_is_told():
    import os

    assert apart(lambda: os._exit(3)) is None
