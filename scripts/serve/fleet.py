#!/usr/bin/env python3
"""A fleet to look at without a GPU: three stand-in replicas of vLLM 0.25.1, and what `attnfix status --metrics` says of them.

    make fleet
    python -m scripts.serve.fleet --keep     until Ctrl-C, to ask more of them

Each replica is scripts/serve/deployment.py: real code of the engine with stand-ins for GPU kernels, and the metrics page that
the engine itself makes. The first has attnfix, in the second one fix is switched off, in the third all of it. Fails where
`attnfix status` does not end with 3: the third replica is without.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from attnfix.cli.listing import fix_named
from attnfix.cli.status import EXIT_MISSING
from attnfix.compat.releases import fetch
from attnfix.prove.runner import CPU

ROOT = Path(__file__).resolve().parents[2]
ENGINE, RELEASE, FIX = "vllm", "0.25.1", "vllm.mla-context-order"
REPLICAS: tuple[tuple[str, dict[str, str]], ...] = (
    ("with attnfix", {}),
    (f"{FIX} off", {fix_named(FIX).switch: "0"}),
    ("without attnfix", {"ATTNFIX": "0"}),
)


@contextmanager
def replica(variables: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A deployment that starts; its address is the line that it prints when it is ready."""
    folder.mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    surroundings = {**CPU, "ATTNFIX_RUN_DIR": str(folder / "run")}
    command = [sys.executable, "-m", "scripts.serve.deployment", f"{ENGINE}=={RELEASE}", FIX, "--ranks", "1", "--page"]
    around = {**clean, **surroundings, **variables}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command, env=around, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()  # type: ignore[union-attr]
            process.wait()


def address(process: subprocess.Popen[str], folder: Path) -> str:
    found: str | None = next((line.split()[1] for line in process.stdout or () if line.startswith("ready ")), None)
    if found is None:
        raise SystemExit(f"a replica ended before it was ready:\n{(folder / 'log').read_text()}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--keep", action="store_true", help="let the replicas run until Ctrl-C")
    options = arguments.parse_args(argv)
    print(f"starting {len(REPLICAS)} stand-in replicas of {ENGINE} {RELEASE}: half a minute", flush=True)
    fetch.fetch(ENGINE, RELEASE)  # once, and not in each of them
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folders = [Path(temporary, str(number)) for number in range(len(REPLICAS))]
        running = [stack.enter_context(replica(around, folder)) for folder, (_, around) in zip(folders, REPLICAS)]
        pages = [address(process, folder) for process, folder in zip(running, folders)]
        for page, (told, _) in zip(pages, REPLICAS):
            print(f"{page}: {told}")
        command = ["attnfix", "status", "--metrics", *pages]
        print(f"$ {' '.join(command)}", flush=True)
        code = subprocess.run([sys.executable, "-m", *command]).returncode
        print(f"exit code {code}", flush=True)
        if options.keep:
            with suppress(KeyboardInterrupt):
                running[0].wait()
    return int(code != EXIT_MISSING)


if __name__ == "__main__":
    sys.exit(main())
