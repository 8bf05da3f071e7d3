"""What the end-to-end scripts share: servers in processes of their own, comparisons, intervals, the evidence file."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.serve import e2e, tiny_deepseek, tiny_llama
from scripts.serve.sides import Serving, Side

ROOT = Path(__file__).resolve().parents[3]

CHILD = f"""
import os, subprocess, sys, time
sys.path.append({str(ROOT)!r})
from scripts.serve import e2e

def echo(word):
    print("noise of the engine")
    subprocess.run(["echo", "noise of its children"])
    return {{"word": word, "off": os.environ.get("ATTNFIX"), "strict": os.environ.get("ATTNFIX_STRICT")}}

def start(**settings):
    machine = {{"settings": settings, "cache": os.environ["CACHE"], "plugin": os.environ.get("PYTHONPATH")}}
    return {{"seconds": 0, "machine": machine}}

def fail():
    raise ValueError("no such thing")

e2e.serve({{"echo": echo, "fail": fail, "start": start, "die": lambda: os._exit(7)}})
"""


@pytest.fixture
def child(tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    return (str(tmp_path / "child.py"),)


def test_a_server_answers_and_what_it_prints_goes_to_its_log(child, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNFIX_STRICT", "1")
    with e2e.Server(child, "one", tmp_path, {"ATTNFIX": "0"}) as server:
        for word in ("first", "second\nline"):
            assert server.ask("echo", word=word) == {"word": word, "off": "0", "strict": None}
        assert server.ask("fail", may_fail=True) == {"error": "ValueError: no such thing"}
        assert server.status() == []
        assert "noise of the engine" in server.tail(9) and "noise of its children" in server.tail(9)
    assert server.process.returncode == 0


def test_an_error_that_must_not_be_ends_the_script_with_the_log(child, tmp_path):
    server = e2e.Server(child, "one", tmp_path, {})
    server.ask("echo", word="x")
    with pytest.raises(SystemExit, match=r"one: fail: ValueError: no such thing\n(?s:.*)noise of the engine"):
        server.ask("fail")
    assert server.process.poll() is not None
    dead = e2e.Server(child, "two", tmp_path, {})
    assert dead.ask("die", may_fail=True) == {"error": "the process ended with 7"}
    assert "error" in dead.ask("echo", may_fail=True, word="x")
    dead.close()


def test_sides_start_with_what_all_have_and_what_is_theirs(child, tmp_path):
    serve = Serving(child, tmp_path / "model", tmp_path, {"chunk": 8, "backend": "a"}, {"ATTNFIX": "0"}, cache="CACHE")
    (tmp_path / "plugin").mkdir()
    sides = {"stock, b": Side({}, {"backend": "b"}), "other": Side({"ATTNFIX": "1"}, plugin=tmp_path / "plugin")}
    found = serve(sides, lambda server: server.ask("echo", word="x"))
    model = {"model": str(tmp_path / "model"), "chunk": 8}
    assert [side["off"] for side in found.values()] == ["0", "1"]
    assert [side["environment"] for side in found.values()] == [{}, {"ATTNFIX": "1"}]
    stock, other = (side["machine"] for side in found.values())
    assert stock["settings"] == model | {"backend": "b"} and other["settings"] == model | {"backend": "a"}
    assert other["plugin"].split(":")[0] == str(tmp_path / "plugin") not in (stock["plugin"] or "")
    assert stock["cache"] != other["cache"]


def test_a_side_that_does_not_start_says_why(child, tmp_path):
    serve = Serving(child, tmp_path / "model", tmp_path, {}, {"ATTNFIX": "0"})  # without the variable that `start` reads
    found = serve({"one": Side({}, may_fail=True)}, lambda server: {"answers": 1})
    assert found == {"one": {"ended": "start: KeyError: 'CACHE'", "said": None, "environment": {}, "processes": []}}
    with pytest.raises(SystemExit):
        serve({"one": Side({})}, lambda server: {})


def test_the_exceptions_of_a_log():
    log = "ERROR 11 File x, line 3\n  raise TypeError\n(Core) AssertionError\nValueError: no such thing\nan Error of nobody"
    assert e2e.errors(log) == ["AssertionError", "ValueError: no such thing"]
    assert e2e.errors(log.replace("\n", "\r\n")) == e2e.errors(log)


def test_red_zones_leave_the_device_of_a_context_alone():
    """`with torch.device(…)` knows the functions that make tensors by identity."""
    code = "import torch\nwith torch.device('meta'): print(torch.zeros(2).device, torch.zeros.__module__)"
    zones = ROOT / "scripts/serve/red_zones"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(zones), "ATTNFIX": "0"},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == ["meta", "sitecustomize"], ran.stderr


def answer(first, *others, tokens=(5, 6, 7)):
    """An answer whose most probable tokens are 0, 1, …, with these log-probabilities."""
    return {"tokens": list(tokens), "logprobs": {str(token): value for token, value in enumerate((first, *others))}}


def test_a_python_without_attnfix_is_said_at_once(tmp_path, monkeypatch):
    e2e.require_attnfix()
    (tmp_path / "attnfix.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"^attnfix is not usable here \(ImportError: not here\): install it with .* -m pip"):
        e2e.require_attnfix()


def test_compare():
    same = answer(-1.0, -2.0)
    assert e2e.compare(same, same) == {"difference": 0.0, "in_common": 2, "equal_tokens": 3}
    other = answer(-1.5, -2.0, tokens=(5, 0, 7))
    assert e2e.compare(same, other) == {"difference": 0.5, "in_common": 2, "equal_tokens": 1}
    unlisted = {"tokens": [5], "logprobs": {"9": -4.0, "0": -1.0}}
    assert e2e.compare(same, unlisted) == {"difference": 2.0, "in_common": 1, "equal_tokens": 1}  # at least 4 - 2
    assert e2e.compare(same, answer(math.nan, -2.0))["difference"] == math.inf
    both = e2e.worst([e2e.compare(same, other), e2e.compare(same, unlisted)])
    assert both == {"difference": 2.0, "in_common": 1, "equal_tokens": 1}


def test_ratio_is_a_paired_t_interval_of_logarithms():
    found = e2e.ratio([2.0, 8.0, 4.0], [1.0, 2.0, 2.0])  # ratios 2, 4, 2
    logs = [math.log(value) for value in (2, 4, 2)]
    mean = sum(logs) / 3
    half = 4.303 * math.sqrt(sum((x - mean) ** 2 for x in logs) / 2) / math.sqrt(3)
    expected = {"ratio": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half), "pairs": 3}
    assert found == pytest.approx(expected)
    assert e2e.ratio([3.0] * 40, [2.0] * 40) == pytest.approx({"ratio": 1.5, "low": 1.5, "high": 1.5, "pairs": 40})
    assert e2e.ratio([3.0], [2.0]) == {"ratio": pytest.approx(1.5), "low": 0.0, "high": math.inf, "pairs": 1}
    with pytest.raises(ValueError):
        e2e.ratio([1.0], [1.0, 2.0])


def row(fix, state, corrections=0, calls=0):
    counters = {"calls": calls, "corrections": corrections, "rows": 0}
    return {"fix": fix, "state": state, "reason": "…", "code": "c", "switch": "s", "release": "r", "counters": counters}


def test_records_in_short():
    rows = [row("a.x", "effective", 3, 9), row("a.y", "dormant"), row("a.z", "dormant"), row("a.w", "installed")]
    kernels = {"fixup": {"path": "cuda"}, "merge": {"path": "unused"}}
    seen = e2e.engaged({"pid": 4, "alive": True, "fixes": rows, "kernels": kernels})
    assert seen["others"] == {"dormant": 2} and set(seen["fixes"]) == {"a.x", "a.w"} and seen["kernels"] == {"fixup": "cuda"}
    assert e2e.corrections([seen, seen], "a.x") == 6 and e2e.corrections([seen], "a.w") == 0 == e2e.corrections([seen], "a.y")
    assert e2e.activity([seen])[0] == "a.x: effective, 3 corrections in 9 calls (process 4)"


@pytest.mark.parametrize("gpu, short", [("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA B200", "b200"), ("Some GPU", "some-gpu")])
def test_cases_of_a_release_lie_in_one_file(tmp_path, gpu, short):
    about = {"gpu": gpu, "engine": "vllm", "release": "0.25.1"}
    e2e.write(tmp_path, about, "order", {"difference": math.inf, "each": (1.0, math.nan)})
    path = e2e.write(tmp_path, about, "empty", {"difference": 0.5})
    assert path.name == f"e2e-{short}-vllm-0.25.1.json"
    cases = json.loads(path.read_text())["cases"]
    assert (
        cases["order"]["each"] == [1.0, None] and cases["order"]["difference"] is None and cases["empty"]["difference"] == 0.5
    )


def test_awq_weights_are_what_an_awq_kernel_reads():
    torch = pytest.importorskip("torch")
    from attnfix.patches.lab import emulators

    assert tiny_deepseek.AWQ_ORDER == emulators.AWQ_ORDER
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(3)).bfloat16()
    parts = tiny_deepseek.awq(weight)
    read = emulators.awq_gemm(torch.eye(256, dtype=torch.float16), parts["qweight"], parts["scales"], parts["qzeros"], 8)
    steps = parts["scales"].float().repeat_interleave(128, 0)
    assert ((read.float() - weight.float().t()).abs() <= 0.51 * steps).all()


@pytest.mark.parametrize("made, kind", [(tiny_deepseek, "DeepseekV2"), (tiny_llama, "Llama")])
def test_the_checkpoint_is_that_of_the_configuration(monkeypatch, made, kind):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    small = {"VOCABULARY": 96, "HEADS": 2, "KV_HEADS": 1, "LORA": 128}
    for name, value in small.items():
        if hasattr(made, name):
            monkeypatch.setattr(made, name, value)
    size = tiny_deepseek.Size(layers=3, hidden=128, inner=128, drawn=2)
    with torch.device("meta"):
        model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**made.config(size)))
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    weights = made.weights(size)
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == expected
    gate = "model.layers.{}.mlp.gate_proj.weight".format
    assert weights[gate(0)].equal(weights[gate(2)]) and not weights[gate(0)].equal(weights[gate(1)])
    assert weights[gate(0)].data_ptr() != weights[gate(2)].data_ptr()
    if made is tiny_deepseek:
        packed = made.quantized(weights)
        projections = [name for name in expected if "_proj" in name]
        assert len(projections) == 7 * 3 and len(packed) == len(expected) + 2 * len(projections)
        assert not set(projections) & set(packed)


def test_the_llama_is_a_granite_of_the_same_answers(monkeypatch):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    monkeypatch.setattr(tiny_llama, "VOCABULARY", 96)
    size = tiny_deepseek.Size(layers=2, hidden=128, inner=128, drawn=2)
    weights = {name: weight.float() for name, weight in tiny_llama.weights(size).items()}
    answers = []
    for kind, other in (("Llama", {}), ("Granite", tiny_llama.AS_GRANITE)):
        config = getattr(transformers, f"{kind}Config")(**tiny_llama.config(size) | other)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).float().eval()
        model.load_state_dict(weights)
        answers.append(model(torch.tensor([[5, 6, 7, 8]])).logits)
    torch.testing.assert_close(*answers)
