"""What the log of a real release says: its own logger, format and configuration, a main process and a rank."""

from __future__ import annotations

import re

import pytest

#: What stands at the top of each engine's processes, and how each sets its logging up there: sglang after its imports
SCRIPT = """
import multiprocessing, sys
from attnfix.prove import stubs
ENGINE, PROOF, SERVE = sys.argv[1:]

def process(prefix, serve):
    import importlib
    stubs.install(ENGINE)
    proof = importlib.import_module(PROOF).Proof()
    import logging
    if ENGINE == "sglang":
        from types import SimpleNamespace
        from sglang.srt.utils import configure_logger
        configure_logger(SimpleNamespace(log_level="info"), prefix=prefix)
        log = logging.getLogger("sglang.srt.model_executor.model_runner")
    else:
        from vllm.logger import init_logger
        log = init_logger("vllm.v1.worker.gpu_worker")
    log.info("Load weight begin.")
    log.info("Load weight end.")
    if serve:
        proof.prepare()
        proof.scenario(0)
        proof.scenario(1)

if __name__ == "__main__":
    process("", False)
    print("RANK", file=sys.stderr, flush=True)
    print("RANK", flush=True)
    rank = multiprocessing.get_context("spawn").Process(target=process, args=(" TP0", SERVE == "serve"))
    rank.start()
    rank.join()
    assert rank.exitcode == 0
"""
ENGINES = {
    "sglang": (
        "0.5.9",
        "sglang.zero_kv_rows",
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] attnfix: ",
        r"\[[-\d]+ [:\d]+ TP0\] attnfix: ",
    ),
    "vllm": ("0.20.2", "vllm.both_empty_merge_triton", *[r"(?:\(.*\) )?INFO [-\d]+ [:\d]+ \[messages.py:\d+\] attnfix: "] * 2),
}


def said(environment, tmp_path, engine, package, serve="serve", **variables):
    """The lines of the main process and those of its child, on both streams."""
    script = tmp_path / "serve.py"
    script.write_text(SCRIPT)
    done = environment.run(str(script), engine, f"attnfix.patches.{package}.proof", serve, **variables)
    parts = [stream.partition("RANK\n") for stream in (done.stdout, done.stderr)]
    return [[line for part in parts for line in part[side].splitlines() if "attnfix: " in line] for side in (0, 2)]


def named_once(lines, engine):
    names = [name for line in lines for name in re.findall(rf"{engine}\.[\w-]+", line)]
    return len(names) == len(set(names))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_one_line_on_what_is_installed_and_one_on_the_first_correction(engine_python, tmp_path, engine):
    release, package, main_format, rank_format = ENGINES[engine]
    main, rank = said(engine_python(engine, release), tmp_path, engine, package)
    installed = rf"[\d.]+ installed \d+ fix(es)? in {engine} {release} \(code of {release}\): \S.*"
    fix = package.replace("_", "-")
    corrected = rf"{re.escape(fix)} corrected its first call( \(\d+ rows\))?: \S.*"
    # A line for all that was installed since the last one: modules that the package itself imports come first
    assert main and all(re.fullmatch(main_format + installed, line) for line in main) and named_once(main, engine), main
    first, others = [line for line in rank if "installed" in line], [line for line in rank if "installed" not in line]
    assert all(re.fullmatch(rank_format + installed, line) for line in first) and named_once(first, engine), rank
    assert sum(fix in line for line in (*main, *first)) == 1, "named once a server"
    assert any(re.search(r"as in process \d+$", line) for line in first), rank
    # Other fixes that the same call needs say theirs: one line each
    assert sum(bool(re.fullmatch(rank_format + corrected, line)) for line in others) == 1, rank
    fixes = [line.split("attnfix: ")[1].split()[0] for line in others]
    assert len(fixes) == len(set(fixes)) and all("corrected its first call" in line for line in others), rank


@pytest.mark.drawn(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_main_process_alone_warns(engine_python, tmp_path, engine):
    release, package, *_ = ENGINES[engine]
    main, rank = said(engine_python(engine, release), tmp_path, engine, package, "idle", ATTNFIX_NO_SUCH_SWITCH="1")
    complaint = "ATTNFIX_NO_SUCH_SWITCH is unknown and ignored"
    assert sum(complaint in line for line in main) == 1, main
    assert not any("WARNING" in line for line in rank), rank
    if engine == "vllm":  # its logging stands before its modules are imported
        assert sum(complaint in line and "INFO" in line for line in rank) == 1, rank


def test_a_healthy_release_says_nothing(engine_python, tmp_path):
    assert said(engine_python("vllm", "0.33.0"), tmp_path, "vllm", "vllm.both_empty_merge_triton", "idle") == [[], []]
