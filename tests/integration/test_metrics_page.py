"""Our lines on the metrics page that a real release makes itself, scraped over HTTP while its processes run."""

from __future__ import annotations

import re

import pytest

#: The page's process and one rank, which calls the engine's code; the scrapes go to standard output, each after its name
SCRIPT = """
import importlib, multiprocessing, os, subprocess, sys, threading, urllib.request
from attnfix.prove import stubs
ENGINE, PROOF, MODE = sys.argv[1:]

def rank(counted, done):
    stubs.install(ENGINE)
    from prometheus_client import Counter
    Counter(f"{ENGINE}:tokens", "Of the engine.", ["model"]).labels("m").inc(41)
    proof = importlib.import_module(PROOF).Proof()
    proof.prepare()
    for seed in range(2):
        proof.scenario(seed)
        counted.put(None)
        done.get()

def page(app):
    if ENGINE == "sglang":
        from sglang.srt.utils import add_prometheus_middleware
        add_prometheus_middleware(app)
    else:
        from vllm.entrypoints.serve.instrumentator.metrics import attach_router
        attach_router(app)

def scrape(name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/", timeout=60) as response:
        print(f"PAGE {name}\\n{response.read().decode()}", flush=True)

if __name__ == "__main__":
    stubs.install(ENGINE)
    if ENGINE == "sglang":
        from sglang.srt.utils import set_prometheus_multiproc_dir
        set_prometheus_multiproc_dir()
    else:
        from vllm.v1.metrics.prometheus import setup_multiprocess_prometheus
        if MODE == "multiprocess":
            setup_multiprocess_prometheus()
    import fastapi, uvicorn
    app = fastapi.FastAPI()
    page(app)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, loop="asyncio", http="h11", log_level="warning"))
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    while not server.started:
        serving.join(0.1)
        assert serving.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    scrape("before")
    context = multiprocessing.get_context("spawn")
    counted, done = context.Queue(), context.Queue()
    process = context.Process(target=rank, args=(counted, done))
    process.start()
    counted.get(timeout=240)
    scrape("first")
    if MODE == "multiprocess":  # the same folder, read by a Python that knows nothing of attnfix
        code = ("from prometheus_client import CollectorRegistry, generate_latest, multiprocess as m\\n"
                "m.MultiProcessCollector(registry := CollectorRegistry())\\nprint(generate_latest(registry).decode())")
        print("PAGE stock", flush=True)
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "ATTNFIX": "0"}, check=True)
    done.put(None)
    counted.get(timeout=240)
    scrape("second")
    done.put(None)
    process.join()
    scrape("ended")
"""
CASES = [
    ("sglang", "0.5.9", "sglang.zero_kv_rows", "multiprocess"),
    ("sglang", "0.5.13", "sglang.lse_log_base", "multiprocess"),
    ("vllm", "0.25.1", "vllm.both_empty_merge_triton", "single"),
    ("vllm", "0.25.1", "vllm.both_empty_merge_triton", "multiprocess"),
]


def pages(environment, folder, engine, package, mode, **variables) -> dict[str, list[str]]:
    """Records of processes are in `folder`."""
    script = environment.folder / "serve.py"
    script.write_text(SCRIPT)
    done = environment.run(
        str(script), engine, f"attnfix.patches.{package}.proof", mode, ATTNFIX_RUN_DIR=str(folder), **variables
    )
    texts = done.stdout.partition("PAGE ")[2].split("PAGE ")
    return {name: text.strip().splitlines() for name, _, text in (text.partition("\n") for text in texts)}


@pytest.fixture(scope="module")
def served(engine_python, tmp_path_factory):
    """`served(case)`: what a server said, and the folder of its records. A case is served once."""
    made: dict[tuple, tuple] = {}

    def serve(case):
        if case not in made:
            engine, release, package, mode = case
            folder = tmp_path_factory.mktemp("run")
            made[case] = pages(engine_python(engine, release), folder, engine, package, mode), folder
        return made[case]

    return serve


def value(page, counter, fix) -> float:
    """Of one sample. A name that is there twice would be refused by Prometheus."""
    engine = fix.partition(".")[0]
    (line,) = [line for line in page if line.startswith(f'attnfix_{counter}_total{{engine="{engine}",fix="{fix}"}} ')]
    return float(line.rpartition(" ")[2])


def effective(line: str) -> bool:
    return line.startswith("attnfix_fix_info{") and 'state="effective"' in line


def stock_part(page) -> list[str]:
    return [line for line in page if "attnfix" not in line]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("engine, release, package, mode", CASES)
def test_a_ranks_counters_are_on_the_servers_page(served, engine, release, package, mode):
    fix = package.replace("_", "-")
    seen, _ = served((engine, release, package, mode))
    samples = [line for line in seen["before"] if re.match(r"attnfix_\w+_total\{", line)]
    assert all(line.endswith(" 0.0") for line in samples), "vLLM's server imports some targets, and calls none"
    first, second, ended = seen["first"], seen["second"], seen["ended"]
    assert 0 < value(first, "corrections", fix) <= value(first, "calls", fix)
    for counter in ("calls", "corrections", "rows"):
        # The scenario ran once more. A process that ended takes nothing with it: a counter never falls
        assert value(second, counter, fix) == value(ended, counter, fix) == 2 * value(first, counter, fix)
        assert f"# TYPE attnfix_{counter}_total counter" in first
    import attnfix

    info = {"attnfix": attnfix.__version__, "engine": engine, "fix": fix, "release": release, "state": "effective"}
    for page in (first, second):
        (line,) = [line for line in page if effective(line) and f'fix="{fix}"' in line]
        assert dict(re.findall(r'(\w+)="([^"]*)"', line)) == info and line.endswith(" 1.0")
    assert not any(map(effective, ended)), "a state is one of a process that runs"
    if mode == "multiprocess":
        # What vLLM's server counts of its own requests is on the page alone: its counters are older than the folder
        ours_aside = [line for line in stock_part(first) if "http_" not in line]
        assert ours_aside == seen["stock"] and any(line.startswith(f"{engine}:tokens_total") for line in ours_aside)


def test_the_rest_of_a_single_process_page_is_as_without_us(served, engine_python, tmp_path):
    engine, release, package, mode = CASES[2]
    with_us = served(CASES[2])[0]["first"]
    without = pages(engine_python(engine, release), tmp_path, engine, package, mode, ATTNFIX="0")["first"]
    assert not any("attnfix" in line for line in without)

    def comparable(page):  # values of Python's garbage collector and of the process differ from run to run
        varying = re.compile(r"(?!#)(python_gc_|process_|http_|\S*_created)\S*")
        return [found[0] if (found := varying.match(line)) else line for line in stock_part(page)]

    assert comparable(with_us) == comparable(without)


def test_two_servers_with_one_folder_of_records_are_told_apart(served, engine_python):
    """A server's page has its own processes, whatever ran or runs beside it."""
    engine, release, package, mode = CASES[0]
    fix = package.replace("_", "-")
    one, folder = served(CASES[0])
    other = pages(engine_python(engine, release), folder, engine, package, mode)
    assert not any(line.startswith(("attnfix_calls", "attnfix_fix")) for line in other["before"])
    assert value(other["second"], "calls", fix) == value(one["second"], "calls", fix)
