"""What a process imports of attnfix when it imports an engine: nothing that it has no use for, the other engine's fixes least
of all. And that an engine which comes second is served as the first."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from attnfix.compat.arming.activation import Activation
from attnfix.compat.engines import ENGINES
from attnfix.compat.status import process_record
from attnfix.patches.catalogue import FIXES

TARGET = {
    "sglang": "sglang.srt.layers.attention.trtllm_mla_backend",
    "vllm": "vllm.model_executor.layers.attention.mla_attention",
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(code)`: what `answer(value)` got, in a fresh process. Each engine there is one target module without any code."""
    for name in TARGET.values():
        folder = tmp_path
        *packages, module = name.split(".")
        for package in packages:
            folder /= package
            folder.mkdir()
            (folder / "__init__.py").touch()
        (folder / f"{module}.py").touch()
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(code):
        code = "import json, sys\ndef answer(value): print(json.dumps(value))\n" + code
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert done.returncode == 0
        return json.loads(done.stdout)

    return run


def imported(run, engine, then=""):
    """The modules that are there after the import of a target module of `engine`."""
    return run(f"import {TARGET[engine]}\n{then}\nanswer(list(sys.modules))")


@pytest.mark.parametrize("engine", TARGET)
def test_no_folder_of_a_fix_is_imported_where_none_applies(run, engine):
    assert [name for name in imported(run, engine) if name.startswith("attnfix.patches.")] == ["attnfix.patches.indexed"]


@pytest.mark.parametrize("engine", TARGET)
def test_lines_of_the_index_are_parsed_for_the_fixes_of_this_module_alone(run, engine):
    code = f"import {TARGET[engine]}\nfrom attnfix.bootstrap.process import activation\n"
    code += "known = next(iter(activation().states.values())).fix.index\nanswer(list(known._parsed))"
    parsed = run(code)
    here = [fix for fix in FIXES if TARGET[engine] in fix.target_modules]
    assert {name for name in parsed if name.startswith("fix ")} == {f"fix {fix.id}" for fix in here} and here
    modules = {module for fix in here for module in fix.modules}
    assert {name.partition(" ")[2] for name in parsed if name.startswith("file ")} <= modules


def test_where_the_index_cannot_be_used_every_fix_says_so(run):
    code = "from attnfix.compat.gate import index\n"
    code += "class Lost:\n    def read_bytes(self): raise OSError('gone')\n"
    code += "real = index.read\nindex.read = lambda path: real(Lost())\n"
    code += f"import {TARGET['vllm']}, attnfix\nanswer([row for row in attnfix.status() if row['fix'].startswith('vllm')])"
    states = {row["fix"]: (row["state"], row["reason"]) for row in run(code)}
    assert set(states) == {fix.id for fix in FIXES if fix.engine == "vllm"}
    seen = [states[fix.id] for fix in FIXES if TARGET["vllm"] in fix.target_modules and fix.default]
    assert seen and all(state == "unknown source" and "gone" in reason for state, reason in seen)


@pytest.mark.parametrize("engine", TARGET)
def test_no_proof_no_tool_and_no_kernel_is_imported(run, engine):
    ours = {name for name in imported(run, engine) if name.partition(".")[0] == "attnfix"}
    tools = {"attnfix.cli", "attnfix.prove", "attnfix.kernels", "attnfix.patches.lab.proof"}
    tools |= {f"attnfix.compat.{name}" for name in ("diagnosis", "sglang_facts", "vllm_facts", "releases", "processes")}
    assert not ours & tools and not [name for name in ours if name.endswith(".proof")]


def rows(code):
    code += "\nfrom attnfix.compat.status import process_record\n"
    return code + "answer([row['fix'] for one in process_record.read_all() if one['alive'] for row in one['fixes']])"


def test_an_engine_that_comes_second_is_in_the_record_too(run):
    of = {engine: [fix.id for fix in FIXES if fix.engine == engine] for engine in ENGINES}
    assert run(rows(f"import {TARGET['vllm']}")) == of["vllm"]
    assert run(rows(f"import {TARGET['vllm']}, {TARGET['sglang']}")) == of["vllm"] + of["sglang"]


def test_the_status_is_of_all_fixes_and_so_is_the_record_then(run):
    assert run("import attnfix\nanswer([row['fix'] for row in attnfix.status()])") == [fix.id for fix in FIXES]
    assert sorted(run(rows(f"import {TARGET['vllm']}, attnfix\nattnfix.status()"))) == sorted(fix.id for fix in FIXES)


@pytest.mark.parametrize(
    "variable", ["ATTNFIX_STRICT", "ATTNFIX_VLLM_LSE_LOG_BASE", "ATTNFIX_SGLANG_LSE_LOG_BASE", "ATTNFIX_NOBODYS"]
)
def test_the_switches_of_both_engines_are_known(run, monkeypatch, capfd, variable):
    monkeypatch.setenv(variable, "0")
    code = f"import logging\nlogging.basicConfig(stream=sys.stderr)\nimport {TARGET['vllm']}\n"
    assert run(code + "answer([name for name in sys.modules if name.endswith('.catalogue')])") == []
    assert ("ATTNFIX_NOBODYS is unknown and ignored" in capfd.readouterr().err) == (variable == "ATTNFIX_NOBODYS")


def test_fixes_that_come_later_count_in_the_record(engine):
    first = engine.one_target()
    second = replace(first, id="sglang.second-fix")
    engine.judge_as("affected", second)
    activation = Activation([first])
    backend = engine.load(activation, "attention").Backend()
    backend.forward(1)
    activation.add([second])
    assert [row["state"] for row in process_record.read(activation._recorder._record.path)["fixes"]] == ["effective", "dormant"]
    activation.module_loaded("sglang.attention")
    backend.forward(1)
    told = process_record.read(activation._recorder._record.path)["fixes"]
    assert [(row["fix"], row["counters"]["calls"]) for row in told] == [(first.id, 2), (second.id, 1)]


def test_fixes_that_come_while_another_thread_looks_are_no_error(engine):
    """Who looks at the states has those that were there: they are never changed in place."""
    activation = Activation([engine.fix])
    states = activation.states
    activation.add([replace(engine.fix, id="sglang.second-fix")])
    assert list(states) == [engine.fix.id] and list(activation.states) == [engine.fix.id, "sglang.second-fix"]


def test_an_engine_whose_hook_failed_is_caught_up_with_when_the_other_comes(run):
    """Its fixes are there with the next hook, whichever engine's that is."""
    code = f"import attnfix.bootstrap.process as process, {TARGET['vllm'].partition('.')[0]}\n"
    code += "process._activation = None\nimport sglang\n"
    assert sorted(run(code + "answer(list(process.activation().states))")) == sorted(fix.id for fix in FIXES)


def test_catalogues_are_by_engine():
    for engine in ENGINES:
        found = importlib.import_module(f"attnfix.patches.{engine}.catalogue").FIXES
        assert found and {fix.engine for fix in found} == {engine}


@pytest.mark.parametrize("engine", TARGET)
def test_no_known_bug_is_imported(run, engine):
    code = "import attnfix\nattnfix.status()"
    assert not [name for name in imported(run, engine, code) if "known" in name and name.startswith("attnfix.")]
