"""What joins a metrics page and what does not. Pages of real engines are in tests/integration/test_metrics_page.py."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from importlib.metadata import version

import prometheus_client
import pytest
from prometheus_client import multiprocess

from attnfix.compat import untrusted
from attnfix.compat.arming.activation import Activation
from attnfix.compat.status import fix_state, metrics, metrics_page, process_record


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    monkeypatch.setattr(metrics, "_WAIT_S", 10, raising=False)  # on a machine with much to do


def page(*collectors) -> list[str]:
    registry = prometheus_client.CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return prometheus_client.generate_latest(registry).decode().splitlines()


def written(counts, *, server=None, release="1.0", states=("installed", "dormant"), reason="", **facts):
    """A record of this process as another would leave it: its first fix with these counters."""
    record = process_record.Record()
    record.counters(0).calls, record.counters(0).corrections, record.counters(0).rows = counts
    rows = [{"fix": f"sglang.f{place}", "state": state, "reason": reason} for place, state in enumerate(states)]
    record.write(text("sglang", release, rows, server or metrics.server()) | facts)
    return record


def text(engine, release, rows, server):
    pid = os.getpid()
    return {"pid": pid, "started": process_record.started(pid), "host": socket.gethostname(), "engine": engine, "release":
    release,
            "fixes": rows, "server": server}  # fmt: skip


def test_the_page_names_what_was_counted():
    written((5, 2, 30))
    lines = [line for line in page(metrics._Collector()) if not line.startswith("#")]
    assert lines == [
        'attnfix_calls_total{engine="sglang",fix="sglang.f0"} 5.0',
        'attnfix_corrections_total{engine="sglang",fix="sglang.f0"} 2.0',
        'attnfix_rows_total{engine="sglang",fix="sglang.f0"} 30.0',
        f'attnfix_fix_info{{attnfix="{version("attnfix")}",engine="sglang",fix="sglang.f0",'
        'release="1.0",state="effective"} 1.0',
        'attnfix_processes{attnfix="",engine="sglang",release="1.0"} 1.0',
    ]


def test_the_page_counts_processes_in_which_nothing_is_armed():
    written((0, 0, 0), states=("off",), reason=fix_state.REFUSALS[1])
    written((0, 0, 0), states=("off", "off"), reason=fix_state.REFUSALS[1])
    written((0, 0, 0), states=("off",), reason="not in ATTNFIX_ONLY")
    (line,) = [line for line in page(metrics._Collector()) if line.startswith("attnfix_refused_processes")]
    named = f'attnfix="",engine="sglang",reason="{fix_state.REFUSALS[1]}",release="1.0"'
    assert line == f"attnfix_refused_processes{{{named}}} 2.0"


def test_the_names_and_labels_are_those_that_are_promised():
    written((5, 2, 30))
    written((0, 0, 0), states=("off",), reason=fix_state.REFUSALS[0])
    written((0, 0, 0), states=("observed",), observes=True)
    samples = list(metrics_page.samples("\n".join(page(metrics._Collector()))))
    assert {sample.name: frozenset(sample.labels) for sample in samples} == metrics.METRICS


def test_the_page_says_which_ranks_are_missing_on_it():
    written((5, 2, 30))
    (told,) = [line for line in page(metrics._Collector()) if line.startswith("# HELP attnfix_processes ")]
    assert told.endswith("ranks on other nodes are missing here.")


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "a}b{", 'a="b",c', "a\x1b[31m", "a\x85b", "ä"])
def test_a_label_is_read_back_as_it_was_written(text):
    written((5, 2, 30), release=text)
    (info,) = (each for each in metrics_page.samples("\n".join(page(metrics._Collector()))) if each.name == "attnfix_fix_info")
    assert info.labels["release"] == untrusted.line(text) and info.value == 1


@pytest.mark.parametrize(
    "line",
    [
        "attnfix_calls_total 5", 'attnfix_calls_total{fix="a"} 5', 'attnfix_calls_total{engine="b",fix="a"} five',
        'attnfix_calls_total{engine="b",fix="a} 5', 'attnfix_other{engine="b",fix="a"} 5', '# attnfix_calls_total{fix="a"} 5',
        'vllm:attnfix_calls_total{engine="b",fix="a"} 5', 'attnfix_calls_total{engine="b",fix="' + "\\" * 9999,
    ],
)  # fmt: skip
def test_what_is_no_sample_of_ours_is_passed_over(line):
    assert list(metrics_page.samples(line)) == []


def test_counters_are_read_when_the_page_is(engine):
    activation = Activation([engine.one_target()], facts=lambda: {"server": metrics.server()})
    backend = engine.load(activation, "attention").Backend()
    collector, seen = metrics._Collector(), []
    for _ in range(3):
        backend.forward(2)
        seen += [line for line in page(collector) if line.startswith("attnfix_calls_total")]
    assert [line.rpartition(" ")[2] for line in seen] == ["1.0", "2.0", "3.0"]


def test_processes_add_up_and_one_that_ended_is_not_taken_away(monkeypatch):
    written((5, 2, 30))
    code = (
        "from attnfix.compat.status import process_record\n"
        "import os, sys\nr = process_record.Record()\nr.counters(0).calls = 7\n"
        "r.write({'pid': os.getpid(), 'started': 0, 'host': '', 'engine': 'sglang', 'release': '1.0', 'server': sys.argv[1],"
        " 'fixes': [{'fix': 'sglang.f0', 'state': 'failed', 'reason': ''}]})\n"
    )
    subprocess.run([sys.executable, "-c", code, metrics.server()], check=True)
    lines = page(metrics._Collector())
    assert 'attnfix_calls_total{engine="sglang",fix="sglang.f0"} 12.0' in lines
    assert [line for line in lines if 'state="failed"' in line] == []


def sums():
    return [float(line.rpartition(" ")[2]) for line in page(metrics._Collector()) if line.startswith("attnfix_calls_total")]


def test_no_sum_falls_when_a_record_goes(tmp_path):
    """A record that tells of nothing is removed, and old ones are: the page has shown their calls."""
    record, other = written((5, 0, 0)), written((7, 0, 0))
    assert sums() == [12]
    other.counters(0).calls = 8
    other.path.unlink()
    assert sums() == [12], "as it was seen last"
    record.counters(0).calls = 6
    assert sums() == [13]


def ended(tmp_path, count, mine):
    """Records of processes that have ended: copies, of which nobody holds the lock."""
    record = written((3, 1, 1), server=None if mine else "another", states=["installed"] * 69)
    for number in range(count):
        (tmp_path / "run" / f"host-{number}-00.attnfix").write_bytes(record.path.read_bytes())
    return record


@pytest.mark.parametrize("mine", [True, False])
def test_a_scrape_of_thousands_of_ended_records_takes_little(tmp_path, mine):
    ended(tmp_path, 3000, mine)
    taken = []
    for _ in range(4):
        begin = time.process_time()  # of all threads
        metrics.families()
        taken.append(time.process_time() - begin)
    print([f"{each * 1e3:.1f} ms" for each in taken])
    assert max(taken) < 0.1 and sorted(taken)[2] < 0.05  # the garbage of a whole test process may fall into one of them


def test_all_of_them_are_counted_in_the_end(tmp_path):
    ended(tmp_path, 300, True)
    for _ in range(60):
        found = sums()
        if found[0] == 301 * 3:
            break
    assert found[0] == 301 * 3
    looked = metrics._counts._last
    assert len(looked) == 1 and len(metrics._counts._done) == 300, "each is read once"


def test_what_holds_the_folder_up_does_not_hold_up_the_page(monkeypatch):
    """As a network volume whose server is gone: the page is made in the process that serves requests."""
    written((5, 2, 30))
    assert sums() == [5]
    over = threading.Event()
    monkeypatch.setattr(process_record, "paths", lambda: over.wait(20) and [])
    monkeypatch.setattr(metrics, "_WAIT_S", 0.25)
    begin = time.monotonic()
    assert sums() == [5] and sums() == [5] and time.monotonic() - begin < 5
    over.set()


def slow(monkeypatch, seconds):
    """A file system on which every look at a file takes so long, as a network volume's does."""
    stock = os.lstat
    monkeypatch.setattr(os, "lstat", lambda *args, **kwargs: time.sleep(seconds) or stock(*args, **kwargs))


def test_the_process_that_makes_the_page_is_on_the_first(tmp_path, monkeypatch):
    """However slow the folder is, and however new the records of others are."""
    ended(tmp_path, 40, False)
    written((5, 2, 30))
    later = time.time() + 60
    for path in (tmp_path / "run").glob("host-*"):
        os.utime(path, (later, later))
    slow(monkeypatch, 0.001)
    monkeypatch.setattr(metrics, "_READING_S", 0)
    assert sums() == [5]


def test_every_scrape_reads_on(tmp_path, monkeypatch):
    ended(tmp_path, 10, True)
    slow(monkeypatch, 0.005)
    monkeypatch.setattr(metrics, "_READING_S", 0)
    found = [sums()[0] for _ in range(12)]
    assert found == sorted(found) and found[-1] == 11 * 3


def test_unreadable_records_take_the_time_of_one_scrape(tmp_path):
    """As a process leaves them that is killed while it writes; the time is that of those that can be read."""
    record = written((3, 0, 0))
    torn = bytearray(record.path.read_bytes())
    torn[8:16] = bytes(8)
    for number in range(3):
        (tmp_path / "run" / f"torn-{number}.attnfix").write_bytes(torn)
    ended(tmp_path, 3, True)
    later = time.time() + 60
    for path in (tmp_path / "run").glob("torn-*"):
        os.utime(path, (later, later))
    assert [sums()[0] for _ in range(9)][-1] == 3 + 4 * 3
    (tmp_path / "run" / "torn-0.attnfix").write_bytes(record.path.read_bytes())
    assert sums()[0] == 3 + 5 * 3, "once it is whole"


def test_scrapes_at_once_make_one_look(monkeypatch):
    looks, begun = [], threading.Barrier(8)
    stock = metrics._Counts._look
    monkeypatch.setattr(metrics._Counts, "_look", lambda self: looks.append(1) or time.sleep(0.3) or stock(self))
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: time.sleep(0.02) or start(thread))
    written((5, 2, 30))
    found = []

    def scrape_with_the_others():
        begun.wait(20)
        found.append(sums())

    scrapes = [threading.Thread(target=scrape_with_the_others) for _ in range(8)]
    for scrape in scrapes:
        start(scrape)
    for scrape in scrapes:
        scrape.join(20)
    assert found == [[5]] * 8 and len(looks) == 1


def test_a_forked_child_scrapes_even_if_its_parent_did_at_the_fork():
    written((5, 2, 30))
    sums()
    with metrics._counts._lock:
        pid = os.fork()
        if not pid:
            scrape = threading.Thread(target=metrics.families, daemon=True)
            scrape.start()
            scrape.join(20)
            os._exit(scrape.is_alive())
    assert os.waitpid(pid, 0)[1] == 0


def test_a_worker_that_is_named_later_comes_onto_the_page():
    """Ray starts it under no name, and the driver's comes with its switches."""
    written((5, 0, 0))
    record = written((7, 0, 0), server="its own")
    assert sums() == [5] and sums() == [5]
    told = process_record.read(record.path)
    time.sleep(0.02)  # the clock of a file system stands still for some milliseconds
    record.write(told | {"server": metrics.server()})
    assert sums() == [12]


@pytest.mark.parametrize("counts, server", [((5, 2, 30), "another"), (None, None)])
def test_a_page_with_nothing_to_say_is_untouched(counts, server):
    if counts:
        written(counts, server=server)
    assert page(metrics._Collector()) == []


def test_torn_and_foreign_records_leave_the_page_alone(tmp_path):
    record = written((5, 2, 30))
    record.write({"pid": 1, "host": "x", "started": 1, "fixes": [{"state": "installed"}], "server": metrics.server()})
    (tmp_path / "run" / "other.attnfix").write_bytes(os.urandom(5000))
    assert page(metrics._Collector()) == []


def test_the_server_is_one_name_in_all_its_processes_and_another_in_the_next(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, multiprocessing\n"
        "from attnfix.compat.status import metrics\n"
        "def rank(queue, deeper):\n"
        "    queue.put(metrics.server())\n"
        "    if deeper:\n"
        "        process = multiprocessing.get_context('spawn').Process(target=rank, args=(queue, False))\n"
        "        process.start(), process.join()\n"
        "if __name__ == '__main__':\n"
        "    names = [metrics.server()]\n"
        "    for method in ('spawn', 'fork', 'forkserver'):\n"
        "        context = multiprocessing.get_context(method)\n"
        "        queue = context.Queue()\n"
        "        process = context.Process(target=rank, args=(queue, method == 'spawn'))\n"
        "        process.start()\n"
        "        names += [queue.get(timeout=60) for _ in range(1 + (method == 'spawn'))]\n"
        "        process.join()\n"
        "    print(json.dumps(names))\n"
    )
    runs = [json.loads(subprocess.check_output([sys.executable, str(script)])) for _ in range(2)]
    assert [len(names) for names in runs] == [5, 5]
    first, second = (set(names) for names in runs)
    assert len(first) == len(second) == 1 and first != second


HOOKED = """
import os, sys, types
{setting}
sys.modules["vllm"] = types.ModuleType("vllm")  # a program without an engine has no page of ours
import attnfix
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
{code}
"""


@pytest.mark.parametrize(
    "code, said",
    [
        ("registry = REGISTRY", 1),
        ("attnfix.activate(); attnfix.activate(); registry = REGISTRY", 1),
        ("registry = CollectorRegistry()", 0),
        ("from prometheus_client import multiprocess as m\n"
         "registry = CollectorRegistry(); m.MultiProcessCollector(registry)", 1),
        ("os.environ['ATTNFIX'] = '0'; from prometheus_client import multiprocess as m\n"
         "registry = CollectorRegistry(); m.MultiProcessCollector(registry)", 0),
        ("from prometheus_client import multiprocess as m; m.MultiProcessCollector(REGISTRY); registry = REGISTRY", 1),
    ],
)  # fmt: skip
def test_by_the_import_hook_a_page_has_each_sample_once(tmp_path, code, said):
    folder = tmp_path / "prometheus"
    folder.mkdir()
    setting = f"os.environ['PROMETHEUS_MULTIPROC_DIR'] = {str(folder)!r}" if "Multi" in code else ""
    record = (
        "from attnfix.compat.status import metrics; from attnfix.compat.status import process_record\n"
        "r = process_record.Record()\nr.counters(0).calls = 7\n"
        "r.write({'pid': os.getpid(), 'started': 0, 'host': '', 'engine': 'vllm', 'release': '1.0', 'server': metrics.server(),"
        " 'fixes': [{'fix': 'vllm.f0', 'state': 'installed', 'reason': ''}]})\n"
        "print(generate_latest(registry).decode().count('\\nattnfix_calls_total{'))"
    )
    script = HOOKED.format(setting=setting, code=code + "\n" + record)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == str(said), done.stderr


def test_joined_late_a_page_that_stands_is_extended_once(tmp_path, monkeypatch):
    """As by an entry point, in a process that no `.pth` reached."""
    stock = multiprocess.MultiProcessCollector.collect
    stock = getattr(stock, "__wrapped__", stock)
    monkeypatch.setattr(multiprocess.MultiProcessCollector, "collect", stock)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    registry = prometheus_client.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    written((5, 2, 30))
    for _ in range(2):
        metrics.module_loaded("prometheus_client.multiprocess")
    assert prometheus_client.generate_latest(registry).decode().count("\nattnfix_calls_total{") == 1


def test_attnfix_never_brings_prometheus_client_in(engine):
    code = "import sys, attnfix; attnfix.activate(); attnfix.status(); print('prometheus_client' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
