"""The engines' own published tests of attention, stock and with attnfix active: test by test the same result.

Stubs stand in for compiled packages, as in the proofs; what a test needs a GPU for errs or is skipped, on both sides alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import Row, plain_environment

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 1500
CRASHES = 20  # tests of one run that may end its process
#: (release of vLLM, its tests); sglang's lie in its package
VLLM = (
    ("0.25.1", ("tests/v1/attention", "tests/test_attention_backend_registry.py")),
    ("0.20.2", ("tests/v1/attention", "tests/test_attention_backend_registry.py")),
)
#: Not sglang/test/speculative: in Triton's interpreter its kernels write where they should not, which ends stock processes, too
SGLANG = (("0.5.10.post1", ("sglang/test/attention",)),)
_SAMPLE = "tests/v1/attention/test_mla_prefill_selector.py", "tests/v1/attention/test_batch_reordering.py"


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    jobs = [("vllm", *job) for job in VLLM] + [("sglang", *job) for job in SGLANG]
    if quick:
        jobs = [("vllm", "0.25.1", _SAMPLE)]
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        return [_row(engine, release, files, Path(scratch), say) for engine, release, files in jobs]


def _row(engine: str, release: str, files: tuple[str, ...], scratch: Path, say: Callable[[str], None]) -> Row:
    from attnfix.compat.releases import fetch

    site = fetch.fetch(engine, release)
    folder = site if engine == "sglang" else _unpacked(engine, release, scratch)
    with ThreadPoolExecutor(2) as both:
        stock, patched = both.map(lambda off: _outcomes(engine, files, site, folder, off), (True, False))
    seen = Counter(result[0] for result in stock["tests"].values())
    what = f"tests that {engine} {release} publishes ({', '.join(files)}), stock and patched"
    row = Row(what, seen["passed"] + seen["failed"])
    for name in sorted({*stock["tests"], *patched["tests"]}):
        results = [side["tests"].get(name, ["not there", ""]) for side in (stock, patched)]
        if results[0] != results[1]:
            row.wrong.append(f"{name}: stock {' '.join(results[0])[:200]}, patched {' '.join(results[1])[:200]}")
    if not patched["fixes"] or stock["fixes"]:
        row.wrong.append(f"nothing was compared: fixes that stood, stock {stock['fixes']}, patched {patched['fixes']}")
    row.figures = {outcome: f"{count:,}" for outcome, count in sorted(seen.items())}
    row.figures["fixes that stood"] = str(len(patched["fixes"]))
    if not row.tried:
        row.not_run.append("all of them ask for CUDA, and there is no GPU")
    elif unable := seen["skipped"] + seen["error"] + seen["crashed"]:
        row.not_run.append(f"{unable:,} that need a GPU or a package which is not here: the same on both sides")
    say(f"{engine} {release}: {dict(seen)}")
    return row


def _unpacked(engine: str, release: str, scratch: Path) -> Path:
    """A folder with the tests of the release's source archive."""
    from packaging.version import Version

    from attnfix.compat.releases import pip_config
    from attnfix.compat.releases.index import Index

    index = Index(pip_config.read())
    places, _ = index.archives(engine)
    archive = next(one for place in places for one in place if one.kind == "sdist" and one.version == Version(release))
    path = scratch / archive.filename
    index.download(archive, path, 1 << 28, lambda received: None)
    with tarfile.open(path) as sdist:
        wanted = [member for member in sdist if "/tests/" in f"/{member.name}/"]
        sdist.extractall(scratch, wanted, filter="data")
    return scratch / wanted[0].name.split("/")[0]


def _outcomes(engine: str, files: tuple[str, ...], site: Path, folder: Path, off: bool) -> dict[str, Any]:
    """{"tests": {name: [outcome, error]}, "fixes": those that stood}"""
    from tests.support.environments import CPU

    clean = plain_environment()
    with tempfile.TemporaryDirectory(prefix="attnfix-") as own:
        out = Path(own, "results.jsonl")
        environment = {**clean, **CPU, "PYTHONPATH": os.pathsep.join([str(site), str(HERE)]), "ATTNFIX_RUN_DIR": own}
        environment |= {"ENGINE_TESTS": engine, "ENGINE_TESTS_OUT": str(out)} | ({"ATTNFIX": "0"} if off else {})
        command = [sys.executable, "-m", "pytest", "-q", "-p", "engine_tests_plugin", "-p", "no:cacheprovider", "--noconftest"]
        command += ["-p", "no:randomly", "--continue-on-collection-errors", "-o", "faulthandler_timeout=300", *files]
        tests: dict[str, list[str]] = {}
        for _ in range(CRASHES):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
            lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
            tests |= {line["name"]: line["result"] for line in lines if "name" in line}
            if lines and "fixes" in lines[-1]:
                return {"tests": tests, "fixes": lines[-1]["fixes"]}
            if not lines or "began" not in lines[-1]:
                break
            with out.open("a") as file:  # that test ended the process: go on behind it
                print(json.dumps({"name": lines[-1]["began"], "result": ["crashed", str(done.returncode)]}), file=file)
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}")
