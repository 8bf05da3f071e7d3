#!/usr/bin/env python3
"""A deployment to look at without a GPU: a server and its ranks, child processes that import a real release and run one batch.

    python -m scripts.serve.deployment vllm==0.25.1 vllm.mla-context-order --ranks 2

The release is fetched by name, not installed. Each rank runs the scenario of the fix's proof: the engine's own code, with
stand-ins for its GPU kernels. Prints `ready` when all have, and serves no model; ends with its standard input, or at Ctrl-C.
With `--page`, the server has the metrics page that the engine itself makes, and its address stands behind `ready`.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from attnfix.cli.listing import named
from attnfix.cli.releases import parse
from attnfix.compat.fix import Fix
from attnfix.compat.releases import fetch
from attnfix.patches.lab.proof import observed
from attnfix.prove import stubs
from attnfix.prove.runner import proof_of

#: What the engine calls the process of one tensor parallel rank
TITLES = {"sglang": "sglang::scheduler_TP{}", "vllm": "VLLM::Worker_TP{}"}


def rank(title: str, fix: Fix, seed: int, ready: Any) -> None:
    import setproctitle

    setproctitle.setproctitle(title)
    stubs.install(fix.engine)
    proof = proof_of(fix)()
    proof.prepare()
    observed(proof.scenario(seed))
    ready.put(title)
    multiprocessing.parent_process().join()  # type: ignore[union-attr]  # a child always has one


def page(engine: str) -> str:
    """Serves the engine's metrics page, by its own code; the address."""
    import fastapi
    import uvicorn

    app = fastapi.FastAPI()
    if engine == "sglang":
        importlib.import_module("sglang.srt.utils").add_prometheus_middleware(app)
    else:
        importlib.import_module("vllm.entrypoints.serve.instrumentator.metrics").attach_router(app)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    while not server.started:
        serving.join(0.1)
        if not serving.is_alive():
            raise RuntimeError("the metrics page did not start")
    host, port = server.servers[0].sockets[0].getsockname()
    return f"http://{host}:{port}/metrics"


def main(argv: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("release", metavar="ENGINE==RELEASE")
    arguments.add_argument("fix", type=named, help="the fix whose proof's batch every rank runs")
    arguments.add_argument("--ranks", type=int, default=2)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--page", action="store_true", help="serve the engine's metrics page")
    options = arguments.parse_args(argv)
    engine, release = parse(options.release)
    sys.path.insert(0, str(fetch.fetch(engine, release)))  # spawned children get the path as it is here
    stubs.install(engine)
    importlib.import_module(engine)
    if options.page and engine == "sglang":
        importlib.import_module("sglang.srt.utils").set_prometheus_multiproc_dir()
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    for number in range(options.ranks):
        title = TITLES[engine].format(number)
        context.Process(target=rank, args=(title, options.fix, options.seed, ready), name=title, daemon=True).start()
    for _ in range(options.ranks):
        ready.get()
    print("ready", *([page(engine)] if options.page else []), flush=True)
    with suppress(KeyboardInterrupt):
        sys.stdin.read()


if __name__ == "__main__":
    main()
