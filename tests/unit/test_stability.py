"""docs/stability.md says what is stable: each table there is compared with the program, in both directions. What is promised
holds, and nothing of that kind is left unsaid.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import inspect
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from packaging.version import Version

import attnfix
import attnfix.kernels
from attnfix import cli
from attnfix.bootstrap import process
from attnfix.cli import fleet, forecast, probe
from attnfix.cli.status import EXIT_MISSING
from attnfix.compat.arming import switches
from attnfix.compat.arming.activation import Activation
from attnfix.compat.doctor import condition, running
from attnfix.compat.gate import ledger
from attnfix.compat.status import fix_state, messages, metrics, process_record
from attnfix.patches.catalogue import FIXES
from attnfix.probe import verdicts as judged
from attnfix.prove import verdict as proof
from tests.support.metrics_pages import FIX, exposition
from tests.support.metrics_pages import process as record_of
from tests.support.probe_server import Behaviour, Listening, Protocol

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "stability.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def table(heading: str) -> dict[str, str]:
    """First and second column of the table below a heading; the first without its back quotes."""
    (section,) = re.findall(rf"^##+ {heading}\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line.startswith("|")]
    return {row[0].strip("` |"): row[1] for row in rows[2:]}


def words(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


# The command line


def test_commands_and_their_options():
    (actions,) = (each for each in cli.parser()._actions if isinstance(each, argparse._SubParsersAction))
    told = {
        name: {option for action in command._actions for option in action.option_strings or [action.metavar]}
        - {"-h", "--help", "--json"}
        for name, command in actions.choices.items()
    }
    assert {command: words(cell) for command, cell in table("Commands").items()} == told


def test_exit_codes():
    told = set(table("Exit codes"))
    assert told == {"0", "1", "2", str(EXIT_MISSING), str(messages.EXIT_STRICT), "126", "127", "130"}
    assert cli.main(["explain", "no-such-fix"]) == 2 and cli.main(["verdict", "sglang==9.9.9"]) == 1


def shapes(found, path) -> dict[str, set[str]]:
    """Path → keys of each object in a JSON text. Objects whose keys are names of something are no shape."""
    if isinstance(found, list):
        merged: dict[str, set[str]] = {}
        for each in found:
            for inner, keys in shapes(each, f"{path}[]").items():
                merged.setdefault(inner, keys)
                merged[inner] = merged[inner] | keys
        return merged
    if not isinstance(found, dict) or path.endswith(".kernels"):
        return {}
    merged = {path: set(found)}
    for key, value in found.items():
        merged |= shapes(value, f"{path}.{key}")
    return merged


@pytest.fixture
def server(engine, monkeypatch):
    """A process of a small engine that is patched, this one, and one of the same engine that is not."""
    activation = Activation([engine.fix], facts=process._facts)
    engine.load(activation, "attention", "planning")
    engine.write("launch_server", "import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    command = [sys.executable, "-m", "sglang.launch_server"]
    environment = {**os.environ, "ATTNFIX": "0", "PYTHONPATH": str(engine.folder)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "up\n"
        yield activation
        other.kill()


def probed(tmp_path, monkeypatch, capsys) -> dict[str, set[str]]:
    """The shapes of `attnfix probe`: a server that is compared with an earlier result, and one that dies."""
    found: dict[str, set[str]] = {}
    saved = str(tmp_path / "saved.json")
    for how, more in ((Behaviour(lies={"again": 1.0}), ["--save", saved]), (Behaviour(dies=True), ["--against", saved])):
        with Listening(Protocol(how, 0.01)) as url:
            cli.main(
                [
                    "probe",
                    "--json",
                    url,
                    "--relation",
                    "again",
                    "--relation",
                    "cached prefix",
                    "--prompts",
                    "5",
                    "--length",
                    "64",
                    *more,
                ]
            )
        found |= {
            path: keys | found.get(path, set()) for path, keys in shapes(json.loads(capsys.readouterr().out), "probe").items()
        }
    return found


def test_json_shapes(server, monkeypatch, capsys, tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["DeepseekV2ForCausalLM"]}')
    monkeypatch.setattr(fleet, "_page", lambda url: exposition(monkeypatch, record_of({FIX: "effective"})))
    doctor = ["doctor", str(tmp_path), "--engine", "sglang==0.5.9", "--gpu", "b200"]
    found = {}
    (observed,) = server.states.values()
    observed.observable = True  # as under ATTNFIX=observe
    server._recorder.note()
    for name, arguments in {
        "list": ["list"], "known": ["known"], "explain": ["explain", FIX], "verdict": ["verdict", "sglang==0.5.7"],
        "doctor": doctor, "forecast": ["forecast", "sglang", "--from", "sglang==0.5.7"], "status": ["status"],
        "status --ready": ["status", "--ready"], "status --metrics": ["status", "--metrics", "replica:80"],
        "an error": ["explain", "no-such-fix"],
    }.items():  # fmt: skip
        cli.main([arguments[0], "--json", *arguments[1:]])
        found |= shapes(json.loads(capsys.readouterr().out), name)
    found |= probed(tmp_path, monkeypatch, capsys)
    servers = running.servers()[0][:1]
    monkeypatch.setattr(running, "servers", lambda: (servers, [7]))
    cli.main(["doctor", "--json", "--running"])
    found |= shapes(json.loads(capsys.readouterr().out), "doctor --running")
    found |= shapes({"results": [{each.name: None for each in dataclasses.fields(proof.Result)}]}, "prove")
    found |= shapes([*attnfix.status(), observed.as_dict()], "attnfix.status()")
    promised = {path: (words(re.sub(r"\[`[^`]*`\]", "", cell)), words(cell)) for path, cell in table("JSON").items()}
    assert promised.keys() == found.keys()
    for path, keys in found.items():
        always, at_most = promised[path]
        assert always <= keys <= at_most, path


# Words


def constants(module, *names) -> set[str]:
    return {getattr(module, name) for name in names}


def test_words_of_the_results():
    told = {what: words(cell) for what, cell in table("Words of results").items()}
    states = {value for name, value in vars(fix_state).items() if name.isupper() and isinstance(value, str)}
    verdicts = constants(ledger, "AFFECTED", "FIXED", "NOT_AFFECTED", "UNKNOWN")
    assert told == {
        "state of a fix": states,
        "verdict on a release": verdicts,
        "verdict of a proof": {
            *constants(proof, "PROVEN", "UNPROVEN", "FAILED", "LEFT_ALONE", "NOT_JUDGED"),
            *verdicts - {ledger.AFFECTED, ledger.UNKNOWN},
        },
        "verdict of doctor": constants(condition, "HIT", "POSSIBLE", "NOT_HIT"),
        "change of a forecast": constants(forecast, "NO_LONGER", "STILL", "NEWLY", "NOT_NEEDED", "UNKNOWN"),
        "change of a known bug": constants(forecast, "BROUGHT", "MENDED", "KEPT"),
        "verdict on a replica": constants(fleet, "UNREACHABLE", "SILENT", "MISSING", "BEHIND", "FINE", "OBSERVES"),
        "verdict of probe": constants(judged, "HOLDS", "BROKEN", "UNCLEAR"),
        "relation of probe": {*probe.RELATIONS, probe._LIMITS},
        "harm": {fix.harm for fix in FIXES},
    }


def test_switches():
    told = table("Switches")
    assert set(told) == {*switches.GENERAL, "ATTNFIX_<engine>_<fix>"}
    assert words(told["ATTNFIX_<engine>_<fix>"]) == {word for word in switches._VALUES if word}
    assert all(re.fullmatch(r"(sglang|vllm)\.[a-z\d]+(-[a-z\d]+)*", fix.id) for fix in FIXES)
    assert all(fix.switch == "ATTNFIX_" + re.sub("[.-]", "_", fix.id).upper() for fix in FIXES)


def test_metrics():
    assert {name: words(cell) for name, cell in table("Metrics").items()} == metrics.METRICS


# Records


def test_a_record_as_the_page_lays_it_out_is_read(tmp_path, monkeypatch):
    """Written by hand, byte for byte: the reader of tomorrow has to read it, too."""
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path))
    told = {"pid": 1, "started": 0, "host": "elsewhere", "engine": "vllm", "fixes": [
        {"fix": f"vllm.f{n}", "state": "installed", "reason": "r"} for n in range(2)]}  # fmt: skip
    text = json.dumps(told).encode()
    data = bytearray(8192 + len(text))
    data[:16] = b"attnfix1" + struct.pack("<q", len(text))
    data[64 + 24 : 64 + 48] = struct.pack("<3q", 7, 5, 3)
    data[8192:] = text
    (tmp_path / "x.attnfix").write_bytes(data)
    found = process_record.read(tmp_path / "x.attnfix")
    assert [row["state"] for row in found["fixes"]] == ["installed", "effective"]
    assert found["fixes"][1]["counters"] == {"calls": 7, "corrections": 5, "rows": 3}
    assert {name: found[name] for name in ("host", "engine", "release", "rank")} == {
        "host": "elsewhere", "engine": "vllm", "release": None, "rank": None,
    }  # fmt: skip


def test_a_record_is_written_as_the_page_lays_it_out(server, engine):
    engine_backend = sys.modules["sglang.attention"].Backend()
    engine_backend.forward(2)
    (path,) = (engine.folder / "run").glob("*.attnfix")
    data = path.read_bytes()
    assert data[:8] == b"attnfix1"
    (length,) = struct.unpack_from("<q", data, 8)
    text = json.loads(data[8192 : 8192 + length])
    assert struct.unpack_from("<q", data, 64) == (1,), "calls of the first fix"
    assert set(text) == words(table("Records")["the text"])
    at_times = {"traceback", "observable", "observed"}
    assert set(text["fixes"][0]) - at_times == words(table("Records")["each of `fixes"]) - at_times


# Python


def test_python_names_and_signatures():
    told = table("Python")
    offered = {f"attnfix.{name}": getattr(attnfix, name) for name in attnfix.__all__}
    offered |= {f"attnfix.kernels.{name}": getattr(attnfix.kernels, name) for name in attnfix.kernels.__all__}
    assert set(told) == set(offered)
    for name, value in offered.items():
        if callable(value):
            parameters = inspect.signature(inspect.unwrap(value)).parameters.values()
            assert re.findall(r"`([\w*]+)`", told[name]) == [each.name for each in parameters], name


def test_names_of_the_package():
    told = table("Package")
    assert words(told["extras"]) == set(importlib.metadata.metadata("attnfix").get_all("Provides-Extra"))
    assert words(told["entry points"]) == set(PROJECT["entry-points"])
    assert words(told["command"]) == set(PROJECT["scripts"]) == {"attnfix"}


# The rule


def test_the_version_is_written_once():
    assert importlib.metadata.version("attnfix") == attnfix.__version__
    version = PROJECT["version"]
    heading = re.search(r"^## (\S+) \(", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heading and heading[1] == version, "the section that the next release's notes come from"
    folders = ("attnfix", "compat", "patches", "kernels", "scripts")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    written = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.])")
    assert [path for path in [*sources, ROOT / "setup.py", ROOT / "noxfile.py"] if written.search(path.read_text())] == []


def test_what_is_deprecated_is_still_there_and_goes_with_a_major_version():
    for what, cell in table("Deprecated").items():
        if what != "nothing":
            since, goes = map(Version, re.findall(r"(\d+\.\d+)", cell))
            assert goes.major > since.major and goes > Version(PROJECT["version"]), what
