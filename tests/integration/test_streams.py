"""Every command where standard output takes nothing, or little: a reader that has had enough, a full disk, none at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from attnfix.cli import COMMANDS, probe, run, status

#: One cheap line for each command; the release is in the cache, and none of its code is run
LINES = {
    "list": ["list"],
    "known": ["known"],
    "explain": ["explain", "sglang.zero-kv-rows"],
    "doctor": ["doctor", "--engine", "sglang==0.5.23", "--gpu", "h100"],
    "status": ["status"],
    "report": ["report"],
    "verdict": ["verdict", "sglang==0.5.9"],
    "forecast": ["forecast", "sglang", "--from", "sglang==0.5.9"],
    "prove": ["prove", "--engine", "vllm==0.11.1", "--fix", "vllm.gdn-uniform-decode"],
}
FULL = "attnfix: standard output cannot be written: No space left on device\n"
CLOSED = "attnfix: standard output is closed\n"


#: Runs each line in a fork of one Python, its standard output a device or a pipe that nobody reads; standard error in a file
FORKS = """
import json, os, sys, tempfile
from attnfix import cli
said = []
for line in json.loads(sys.argv[2]):
    with tempfile.TemporaryFile("w+") as errors:
        if not (pid := os.fork()):
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing if sys.argv[1] == "pipe" else os.open(sys.argv[1], os.O_WRONLY), 1)
            os.dup2(errors.fileno(), 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
            sys.exit(cli.main(line))  # to the very end of the interpreter, where what is left is flushed
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        errors.seek(0)
        said.append((code, errors.read()))
print(json.dumps(said))
"""


def attnfix(*arguments, redirect, **how):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ATTNFIX", "PYTHONUNBUFFERED"))}
    command = ["sh", "-c", f'"$@" {redirect}', "sh", sys.executable, "-m", "attnfix", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, **{"env": kept, **how})


def every_command(sink, lines):
    """(command line, exit code, standard error) of each."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    command = [sys.executable, "-c", FORKS, sink, json.dumps(lines)]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=300, check=True)
    return [(line, *said) for line, said in zip(lines, json.loads(done.stdout))]


def test_every_command_is_here():
    """bench ends before it prints where there is no GPU, probe without a server, and what `run` starts is not ours."""
    assert {*LINES} == {*COMMANDS} - {"bench", probe.NAME, run.NAME}


MORE = [["list", "--json"], ["--help"], ["--version"], ["prove", "--help"]]


def test_a_full_disk_is_one_sentence():
    for line, code, told in every_command("/dev/full", [*LINES.values(), *MORE]):
        assert (code, told.splitlines(keepends=True)[-1], "Traceback" in told) == (1, FULL, False), (line, told)


def test_a_reader_that_has_had_enough_changes_no_exit_code():
    """As under `set -o pipefail`: the end that is read from is closed before anything is written."""
    lines = [*LINES.values(), *MORE]
    piped, plain = every_command("pipe", lines), every_command("/dev/null", lines)
    assert piped == plain and {code for _, code, _ in plain} <= {0, 1, status.EXIT_MISSING}  # as other servers here are


def test_a_watch_ends_with_its_reader():
    done = attnfix("status", "--watch", "0.1", redirect="| true")
    assert (done.returncode, done.stderr) == (0, "")


def test_no_line_in_a_pipe_ends_in_blanks():
    for line in (LINES["list"], LINES["explain"], LINES["verdict"]):
        text = attnfix(*line, redirect="", stdout=subprocess.PIPE).stdout
        assert not [each for each in text.splitlines() if each != each.rstrip()] and text[-2:].strip(), line


@pytest.mark.parametrize("line", [["list"], ["list", "--json"], ["--help"]], ids=" ".join)
def test_the_same_of_a_shell_with_and_without_a_buffer(line):
    for environment in ({}, {"env": {**os.environ, "PYTHONUNBUFFERED": "1"}}):
        done = attnfix(*line, redirect="> /dev/full", **environment)
        assert (done.returncode, done.stderr) == (1, FULL)
        assert attnfix(*line, redirect="| true", **environment).stderr == ""


def test_a_closed_standard_output_is_one_sentence():
    for line in (["list"], ["status", "--json"], ["--help"], ["bench", "--json"]):
        done = attnfix(*line, redirect=">&-")
        assert (done.returncode, done.stderr) == (1, CLOSED), line


@pytest.mark.parametrize("line", [["explian"], ["list"], ["verdict", "sglang==9.9.9"]], ids=" ".join)
def test_a_standard_error_that_takes_nothing_changes_nothing(line):
    plain = attnfix(*line, redirect="", stdout=subprocess.PIPE)
    for redirect in ("2> /dev/full", "2>&-"):
        done = attnfix(*line, redirect=redirect, stdout=subprocess.PIPE)
        assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, "")


@pytest.mark.parametrize("redirect, code", [(">&-", 0), ("> /dev/full", 0), ("2>&-", 0)])
def test_run_hands_on_what_is_closed(redirect, code):
    done = attnfix("run", "--", "true", redirect=redirect, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize(
    "arguments, code",
    [(["bench", "--json"], 1), (["explain", "nothing", "--json"], 2), (["doctor", "--json", "/nowhere"], 2),
     (["prove", "--json", "--engine", "sglang==9.9.9"], 1), (["explian", "--json"], 2)],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_who_reads_json_gets_the_error_as_json_too(arguments, code):
    done = attnfix(*arguments, redirect="", stdout=subprocess.PIPE)
    assert done.returncode == code and done.stderr == f"attnfix: {json.loads(done.stdout)['error']}\n"


@pytest.mark.parametrize(
    "line, words",
    [
        (LINES["list"], ["sglang.uniform-replay-stride-triton", "vllm.skip-context-zero-fill"]),
        (LINES["doctor"], ["sglang.flashinfer-swa-prefill", "possible", "wrongoutput"]),
        (LINES["verdict"], ["sglang.uniform-replay-stride-triton", "0.5.10", "default"]),
        (LINES["forecast"], ["sglang.uniform-replay-stride-triton", "fixedupstream", "nolongerneeded"]),
        (LINES["prove"], ["vllm.gdn-uniform-decode", "vllm0.11.1", "notjudged"]),
        (LINES["status"], ["Noprocesshasleftarecord", "NosglangorvLLM", "environment."]),
    ],
    ids=lambda value: value[0],
)
def test_a_narrow_terminal_cuts_no_word(line, words, tmp_path):
    wide, narrow = (_narrow(line, columns, tmp_path) for columns in (80, 40))
    assert max(map(len, _tables(wide))) <= 80 and max(map(len, _tables(narrow))) <= 40
    flat = "".join(narrow.split())
    assert [word for word in words if word not in flat] == []


def _narrow(line, columns, records):
    """What the command prints, where no other process of this machine has left a record."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    kept |= {"COLUMNS": str(columns), "ATTNFIX_RUN_DIR": str(records)}
    command = [sys.executable, "-m", "attnfix", *line]
    return subprocess.run(command, env=kept, capture_output=True, text=True, timeout=120).stdout


def _tables(text):
    """Sentences below a table are as long as they are: a terminal folds them."""
    sentences = ("Each", "No ", "no ", "still", "newly", "unknown", "    ", "`")
    return [each for each in text.splitlines() if not each.startswith(sentences) and ": " not in each]
