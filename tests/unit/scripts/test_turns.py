"""Stock and patched servers in turns, `scripts.serve.turns`, and `e2e_no_harm`: the order, the figures, what is a failure."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path

import pytest

from attnfix.patches.catalogue import FIXES
from scripts.serve import armed, e2e, e2e_no_harm, served, turns
from scripts.serve.e2e import PATCHED, STOCK
from scripts.serve.turns import AT_ONCE, COMPILED, ONE_FIRST, Length, Plan

ROOT = Path(__file__).resolve().parents[3]
RELEASE = "0.33.0"
NEEDED = [fix.id for fix in FIXES if fix.id in armed.affected("vllm", RELEASE) and fix.default]

TWO_ROUNDS = Length(2, e2e_no_harm.PARTS)

#: A server without an engine. FAKE names what goes wrong in it
FAKE = f"""
import json, os, pathlib, sys
sys.path.append({str(ROOT)!r})
from scripts.serve import e2e

asked, faults = [], os.environ.get("FAKE", "").split()
patched, pair = "ATTNFIX" not in os.environ, "a" if "-a-" in os.environ["ATTNFIX_RUN_DIR"] else "b"

def start(model, **settings):
    if "FAKE_CACHE" in os.environ:
        cache = pathlib.Path(os.environ["FAKE_CACHE"], "graphs", "of-this-model")
        print("found the graphs" if cache.exists() else "compiled")
        cache.mkdir(parents=True, exist_ok=True)
    return {{"seconds": 1.0, "machine": {{"gpu": "NVIDIA none", "engine": "vllm", "release": {RELEASE!r}, "torch": "2.11.0"}}}}

def round(before, prompts, singles, new_tokens, keep=False):
    asked.append(len(prompts))
    if "dies" in faults and patched and len(asked) == 5:
        os._exit(7)
    seconds = 1.0 + 0.001 * (len(asked) % 7) + 0.1 * ("slow" in faults and patched)
    more = ("other" in faults and patched) + 2 * ("pairs" in faults and pair == "b")
    more += len(asked) % 3 if "odd" in faults and patched else 0
    return {{"seconds": seconds, "first": [0.01] * 3, "tokens": [[sum(prompt) % 97 + more] * 2 for prompt in prompts]}}

e2e.serve({{"start": start, "round": round}})
"""


def process(corrections=0, fix=NEEDED[0], **states):
    rows = {name: {"state": "pending", "reason": "why", "calls": 0, "corrections": 0} for name in NEEDED} | states
    rows[fix] = {"state": "effective", "reason": "why", "calls": 9, "corrections": corrections}
    return {"process": 1, "alive": True, "others": {}, "fixes": rows}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.setattr(e2e.Server, "status", lambda server: [] if server.name.endswith(STOCK) else [process()])
    monkeypatch.setattr(turns.time, "sleep", lambda seconds: None)
    return tmp_path


def plan(fake, **changes):
    return Plan(**{"script": (str(fake / "fake.py"),), "settings": {"a": 1}} | changes)


def no_harm(fake, length=TWO_ROUNDS, **changes):
    return e2e_no_harm.run("vllm", {"m": (plan(fake, **changes), lambda path: path)}, length, fake / "m", fake / "out")


def test_two_pairs_of_servers_without_a_fault(fake):
    length = Length(2, e2e_no_harm.PARTS)
    result, lines, wrong = no_harm(fake, length)
    assert wrong == [] and result["machine"]["release"] == RELEASE and any("ratio 1.0" in line for line in lines)
    seen = result["models"]["m"]
    assert length.pairs == 40 == seen["ratio"]["tokens_per_s"]["pairs"] and seen["requests"] == 200
    assert set(seen["started"]) == {"a stock", "a patched", "b stock", "b patched"} == set(seen["processes"])
    assert "invalid" not in seen and {len(of) for of in seen["each_part"]["tokens_per_s"].values()} == {20}


def test_the_time_may_end_before_the_pairs_are_there(fake):
    seen, _, wrong = no_harm(fake, Length(5, e2e_no_harm.PARTS, seconds=0))
    assert seen["models"]["m"]["rounds"] == 1 and wrong == ["m: 20 of 100 pairs, then the time was over"]


@pytest.mark.parametrize(
    "fault, words",
    [
        ("odd", ("not the tokens of its own first round, in rounds of {'a patched': ", "as no stock server did")),
        (
            "other",
            ("answered as no stock server did: {'a patched': 200, 'b patched': 200}; the two stock servers differ in 0",),
        ),
        ("dies", ("ended: m-a-patched: round: the process ended with 7",)),
    ],
)
def test_a_wrong_run_has_no_figures(fake, monkeypatch, fault, words):
    monkeypatch.setenv("FAKE", fault)
    result, _, wrong = no_harm(fake)
    seen = result["models"]["m"]
    assert all(any(word in sentence for sentence in wrong) for word in words)
    assert seen["invalid"] and not {"ratio", "tokens_per_s", "first_token_s"} & set(seen)


def test_pairs_may_differ_where_stock_does(fake, monkeypatch):
    monkeypatch.setenv("FAKE", "pairs")
    result, _, wrong = no_harm(fake)
    assert wrong == [] and result["models"]["m"]["requests_the_pairs_answer_otherwise"] == 200


def test_a_slow_side_keeps_its_figures_and_fails(fake, monkeypatch):
    monkeypatch.setenv("FAKE", "slow")
    result, _, wrong = no_harm(fake)
    assert len(wrong) == 1 and wrong[0].startswith("m: tokens/s, patched / stock: the interval begins at 0.90")
    assert result["models"]["m"]["ratio"]["tokens_per_s"]["ratio"] == pytest.approx(1 / 1.1, abs=1e-3)


def test_compiled_servers_start_on_what_the_other_side_compiled(fake):
    result, _, wrong = no_harm(fake, waves=COMPILED, cache="FAKE_CACHE", loaded="found the graphs")
    started = result["models"]["m"]["started"]
    assert wrong == [] and {name: (up["place"], up["loaded"]) for name, up in started.items()} == {
        "a stock": (1, False), "b patched": (1, False), "a patched": (2, True), "b stock": (2, True),
    }  # fmt: skip


def test_every_server_is_in_one_wave():
    for waves in (AT_ONCE, ONE_FIRST, COMPILED):
        assert sorted(key for wave in waves for key in wave) == sorted(turns.KEYS)


def test_turns_are_fair():
    found = turns.order(8)
    assert all(len(set(order)) == 4 for order in found)
    places = {key: sorted(order.index(key) for order in found) for key in found[0]}
    assert all(place == [0, 0, 1, 1, 2, 2, 3, 3] for place in places.values())
    before = [order.index(("a", STOCK)) < order.index(("a", PATCHED)) for order in found]
    assert sum(before) == 4


def test_a_drift_that_all_servers_share_cancels():
    """Servers that become slower by half, and one side that is 1 % slower: the interval is about that."""
    draw, clock, figures = random.Random(1), 0, {key: [] for key in turns.KEYS}
    for order in turns.order(60):
        for key in order:
            clock += 1
            factor = 0.99 if key[1] == PATCHED else 1.0
            figures[key].append(factor * (1 - 0.5 * clock / 240) * draw.gauss(1, 0.01))
    found = turns.ratios(figures)
    assert found["pairs"] == 120 and found["low"] < 0.99 < found["high"] and found["high"] - found["low"] < 0.012
    beside = found["stock b / stock a"]
    assert beside["low"] < 1 < beside["high"] and found["pair a"]["pairs"] == 60


def test_every_part_has_as_many_requests_of_each_kind():
    parts = [e2e_no_harm.traffic(at, part) for at in (0, 3) for part in range(e2e_no_harm.PARTS)]
    assert parts[: e2e_no_harm.PARTS] == parts[e2e_no_harm.PARTS :] and {len(part["prompts"]) for part in parts} == {20}
    assert {sum(len(prompt) < 400 for prompt in part["prompts"]) for part in parts} == {9}
    assert max(len(prompt) for part in parts for prompt in part["prompts"]) + e2e_no_harm.NEW_TOKENS < 8192


FIRST, SECOND = ({"place": 1, "loaded": False, "new_graphs": ["g"]}, {"place": 2, "loaded": True, "new_graphs": ["h"]})
GRAPHS = {"a stock": FIRST, "a patched": SECOND, "b patched": FIRST, "b stock": SECOND}
FAILED = {"state": "failed", "reason": "x", "corrections": 0}
GOOD = {
    "rounds_with_other_tokens": {"a patched": 0}, "requests_answered_as_no_stock_server_did": {"a patched": 0},
    "requests_the_pairs_answer_otherwise": 0, "ratio": {"tokens_per_s": {"low": 0.99, "pairs": 40}}, "started": GRAPHS,
    "processes": {"a stock": [], "a patched": [process()]},
}  # fmt: skip


@pytest.mark.parametrize(
    "change, word",
    [
        ({}, None),
        ({"rounds_with_other_tokens": {"a patched": 1}}, "not the tokens"),
        ({"requests_answered_as_no_stock_server_did": {"a patched": 1}}, "as no stock server did"),
        ({"ratio": {"tokens_per_s": {"low": 0.979, "pairs": 40}}}, "begins at 0.979"),
        ({"ratio": {"tokens_per_s": {"low": math.nan, "pairs": 40}}}, "begins at nan"),
        ({"ratio": {"tokens_per_s": {"low": 0.99, "pairs": 20}}}, "20 of 40 pairs"),
        ({"started": {"a stock": SECOND | {"loaded": False}}}, "did not start on"),
        ({"started": GRAPHS | {"b patched": FIRST | {"new_graphs": ["i"]}}}, "in place 1"),
        ({"started": GRAPHS | {"b stock": SECOND | {"new_graphs": []}}}, "in place 2"),
        ({"started": {"a stock": FIRST | {"new_graphs": []}}}, "compiled nothing"),
        ({"processes": {"a stock": [process()]}}, "was active"),
        ({"processes": {"a patched": []}}, "no process has a record"),
        ({"processes": {"a patched": [process(corrections=1)]}}, "something was corrected"),
        ({"processes": {"a patched": [process(**{NEEDED[1]: FAILED})]}}, "failed"),
        ({"processes": {"a patched": [process(fix="vllm.fa3-cascade")]}}, "the ledger does not say affected"),
    ],
)  # fmt: skip
def test_each_check_of_no_harm_can_fail(change, word):
    seen = copy.deepcopy(GOOD | change)
    wrong = e2e_no_harm.invalidated(seen) + e2e_no_harm.failures("vllm", RELEASE, seen, Length(2, 10))
    assert [word in sentence for sentence in wrong] == ([True] if word else [])


def test_servers_are_started_as_those_that_are_known_to_serve():
    for engine, kinds in served.MODELS.items():
        assert set(e2e_no_harm.MAKERS[engine]) == set(e2e_no_harm.KINDS) <= set(kinds)
    hybrid = e2e_no_harm.plan_of("vllm", RELEASE, "hybrid")
    assert hybrid.settings["additional_config"] == {"gdn_prefill_backend": "triton"} and hybrid.waves == ONE_FIRST
    compiled = e2e_no_harm.plan_of("vllm", RELEASE, "dense", compiled=True)
    assert "compilation_config" not in compiled.settings and compiled.cache and compiled.waves == COMPILED
    sglang = e2e_no_harm.plan_of("sglang", "0.5.23", "mla")
    assert sglang.settings["attention_backend"] == "flashinfer" and sglang.waves == AT_ONCE
    runner = "VLLM_USE_V2_MODEL_RUNNER"  # that of 0.25.1 would have to be corrected with a DeepSeek
    assert {release: runner in e2e_no_harm.plan_of("vllm", release, "mla").variables for release in ("0.25.1", RELEASE)} == {
        "0.25.1": True, RELEASE: False,
    }  # fmt: skip


def test_what_is_installed_must_be_what_was_asked_for(monkeypatch):
    monkeypatch.setattr(e2e_no_harm.importlib.util, "find_spec", lambda name: name == "vllm")
    monkeypatch.setattr(e2e_no_harm, "version", lambda name: "0.33.0+cu130")
    assert e2e_no_harm.installed(None) == ("vllm", "0.33.0") == e2e_no_harm.installed("vllm==0.33.0")
    for other in ("vllm==0.32.0", "sglang==0.5.23", "vllm", "tgi==1"):
        with pytest.raises(SystemExit):
            e2e_no_harm.installed(other)


def test_a_model_is_a_case_with_the_command_that_repeats_it(fake, monkeypatch):
    monkeypatch.setattr(e2e_no_harm, "installed", lambda asked: ("vllm", RELEASE))
    monkeypatch.setattr(e2e_no_harm, "plan_of", lambda *about: plan(fake))
    monkeypatch.setitem(e2e_no_harm.MAKERS["vllm"], "mla", lambda path: path)
    monkeypatch.setattr(e2e.sys, "argv", ["e2e_no_harm.py"])
    assert e2e_no_harm.main(["--model", "mla", "--pairs", "20", "--out", str(fake / "out")]) == 0
    (written,) = (fake / "out").glob("e2e-*.json")
    case = json.loads(written.read_text())["cases"]["no-harm mla-large"]
    assert case["command"] == f"python -m scripts.serve.e2e_no_harm --engine vllm=={RELEASE} --model mla --pairs 20"
    assert case["failures"] == [] and case["ratio"]["tokens_per_s"]["pairs"] == 20
