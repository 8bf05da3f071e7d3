"""`scripts.serve.e2e_firing`: what a fix costs that corrects in nearly every step, its plan, and what the pages say of it."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path

import pytest

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID, FIXES
from scripts.evidence import summaries
from scripts.pages import gpu_runs
from scripts.serve import e2e, e2e_firing, e2e_no_harm, firing_plan, turns
from scripts.serve.e2e import STOCK
from scripts.serve.firing_plan import BY_FIX, LEFT_OUT, RELEASES, ROWS, Row
from scripts.serve.turns import Length

ROOT = Path(__file__).resolve().parents[3]
FIX, RELEASE = "vllm.gdn-uniform-decode", "0.33.0"

#: A server without an engine, wrong where stock: nobody compares its tokens
FAKE = f"""
import os, sys
sys.path.append({str(ROOT)!r})
from scripts.serve import e2e

faults, asked = os.environ.get("FAKE", "").split(), []
patched = "ATTNFIX" not in os.environ
ABOUT = {{"gpu": "NVIDIA H200", "engine": "vllm", "release": {RELEASE!r}, "torch": "2.11.0"}}

def start(model, **settings):
    if patched and os.environ[{BY_ID[FIX].switch!r}] != "1" or patched and "no start" in os.environ.get("FAKE", ""):
        raise ValueError("no such thing")
    return {{"seconds": 1.0, "machine": ABOUT}}

def round(before, prompts, singles, new_tokens, keep):
    asked.append(before)
    assert keep and bool(before) == (len(asked) == 1 and "prefix" in faults)
    slow = 1.1 if patched and "slow" in faults else 1.0
    late = 1.1 if patched and "late" in faults else 1.0
    tokens = [[os.getpid() % 97] * new_tokens for prompt in prompts]
    return {{"seconds": slow * (1 + 0.001 * (len(asked) % 7)), "first": [0.01 * late] * 2, "tokens": tokens}}

e2e.serve({{"start": start, "round": round}})
"""


def process(corrections, alive=True):
    row = {"state": "effective", "reason": "why", "calls": 9, "corrections": corrections}
    return {"process": 1, "alive": alive, "others": {}, "fixes": {FIX: row}}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """(fault, how many corrections each look at a patched server finds) -> what was found, and what does not hold."""
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.setattr(turns.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(e2e_firing.e2e_vllm, "SCRIPT", (str(tmp_path / "fake.py"),))

    def run(fault="", counts=None, **changes):
        monkeypatch.setenv("FAKE", fault)
        looks: dict[str, itertools.count] = {}

        def status(server):
            if server.name.endswith(STOCK):
                return []
            at = next(looks.setdefault(server.name, itertools.count()))
            return [process(counts[min(at, len(counts) - 1)] if counts else 50 * at)]

        monkeypatch.setattr(e2e.Server, "status", status)
        about = {"make": lambda path: path, "part": firing_plan.fresh((4, 5), 1, 4), "settings": {}} | changes
        row = Row(FIX, RELEASE, "some requests", **about)
        result, _, wrong = e2e_firing.run([row], Length(2, 10), tmp_path / "m", tmp_path / "out")
        return result["models"][FIX], wrong

    return run


def test_a_row_where_nothing_is_wrong(measured):
    seen, wrong = measured()
    assert wrong == [] and seen["ratio"]["tokens_per_s"]["pairs"] == 40 and seen["fix"] == FIX
    assert summaries.each_round(seen, FIX) == {"a patched": [50, 50], "b patched": [50, 50]}
    assert seen["tokens_per_s"][STOCK] == pytest.approx(9 + 2, rel=0.01)  # of prompts, and new ones, in about a second


def test_prefixes_go_into_the_cache_once_and_do_not_count_as_work(measured):
    seen, wrong = measured("prefix", part=firing_plan.behind(2, 5), prefixes=(40,))
    assert wrong == [] and seen["tokens_per_s"][STOCK] == pytest.approx(10 + 2, rel=0.01)


@pytest.mark.parametrize(
    "fault, counts, word",
    [
        ("", [0], "a patched: vllm.gdn-uniform-decode corrected in each round [0, 0]"),
        ("", [0, 50, 50], "a patched: vllm.gdn-uniform-decode corrected in each round [50, 0]"),
        ("no start", None, "patched: start: ValueError: no such thing"),
    ],
)
def test_an_invalid_row_has_no_figures(measured, fault, counts, word):
    seen, wrong = measured(fault, counts)
    assert word in wrong[0] and seen["invalid"] and not {"ratio", "tokens_per_s", "first_token_s"} & set(seen)


@pytest.mark.parametrize("fault, word", [("slow", "the interval begins at 0.90"), ("late", "the interval ends at 1.1")])
def test_what_costs_too_much_is_a_failure_with_figures(measured, fault, word):
    seen, wrong = measured(fault)
    assert len(wrong) == 1 and word in wrong[0] and "ratio" in seen


def test_a_fix_that_corrects_at_start_alone_must_have_done_so(measured):
    assert measured(counts=[3], once=True)[1] == []
    seen, wrong = measured(counts=[0], once=True)
    assert "corrected nothing" in wrong[0] and "invalid" in seen


# The plan


def test_every_default_fix_of_the_newest_releases_has_a_row_or_a_reason():
    known = {
        fix.id
        for fix in FIXES
        for release in RELEASES[fix.engine]
        if fix.default and ledger.load(fix).verdict(release) == ledger.AFFECTED
    }
    rows = {row.fix for row in ROWS}
    assert known <= rows | set(LEFT_OUT) and not rows & set(LEFT_OUT) and set(LEFT_OUT) <= known
    assert len(BY_FIX) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fix)
def test_a_row_is_of_a_release_that_has_the_bug_and_its_requests_fit(row):
    for fix in (row.fix, *row.without):
        assert ledger.load(BY_ID[fix]).verdict(row.release) == ledger.AFFECTED
    plan, traffic = e2e_firing.plan_of(row), e2e_firing.traffic(row)
    assert plan.patched[BY_ID[row.fix].switch] == "1" and not plan.repeats
    first, part = traffic(-1, 0), traffic(0, 3)
    assert len(first["before"]) == len(row.prefixes) and part["before"] == [] and part == traffic(0, 3) != traffic(0, 4)
    longest = plan.settings.get("max_model_len") or plan.settings["context_length"]
    news = part["new_tokens"] if isinstance(part["new_tokens"], list) else [part["new_tokens"]] * len(part["prompts"])
    assert len(news) == len(part["prompts"]) and part["singles"]
    assert all(len(prompt) + new <= longest for prompt, new in zip(part["prompts"], news, strict=True))
    assert 0 < part["computed"] <= sum(map(len, part["prompts"]))
    if row.prefixes:
        assert part["computed"] < sum(map(len, part["prompts"]))


def test_steps_of_the_fix_of_the_context_order_hold_both_kinds():
    """Whatever a step's first chunk is, it has room for a fresh prompt, and a longer part of a prompt with context."""
    part = e2e_firing.traffic(BY_FIX["vllm.mla-context-order"])(0, 0)
    lengths = [len(prompt) for prompt in part["prompts"]]
    assert lengths == [7300, 600] * 8 and part["computed"] == 8 * 1900 and all(len(group) == 2 for group in part["singles"])


def test_rows_are_chosen_by_what_is_installed(monkeypatch):
    monkeypatch.setattr(e2e_firing.e2e, "gpus", lambda: 1)
    assert {row.fix for row in e2e_firing.chosen("vllm", RELEASE, None)} == {
        "vllm.gdn-uniform-decode", "vllm.accepted-counts-race", "vllm.padded-one-token-prompt",
    }  # fmt: skip
    assert [row.fix for row in e2e_firing.chosen("vllm", RELEASE, [FIX])] == [FIX]
    with pytest.raises(SystemExit, match=r"vllm\.mla-context-order needs vllm, say 0\.25\.1"):
        e2e_firing.chosen("vllm", RELEASE, ["vllm.mla-context-order"])
    with pytest.raises(SystemExit, match="cannot be told"):
        e2e_firing.chosen("vllm", None, None)
    listed = e2e_firing.listing()
    assert all(fix in listed for fix in (*BY_FIX, *LEFT_OUT))


# The pages


def test_rows_of_the_pages(measured, monkeypatch, tmp_path):
    found: list[dict] = []
    monkeypatch.setattr(gpu_runs, "_runs", lambda: found)
    assert gpu_runs.firing() == "No row was measured yet." and gpu_runs.firing_of(FIX) == []
    valid, invalid = copy.deepcopy(measured()[0]), measured(counts=[0])[0]
    about = {"gpu": "NVIDIA H200", "engine": "vllm"}
    for release, case in ((RELEASE, valid), ("0.25.1", invalid)):
        case["failures"] = case.get("invalid", [])
        path = e2e.write(tmp_path, about | {"release": release}, f"firing {FIX}", case)
        found.append(summaries.of(json.loads(path.read_text()), path.name, "abc") | {"file": path.name})
    _, _, newest, older = gpu_runs.firing().splitlines()
    assert f"`{FIX}` | [vllm 0.33.0](evidence/runs/e2e-h200-vllm-0.33.0.json) | H200 | some requests | 11 tokens/s |" in newest
    assert newest.endswith("1.000 (1.000-1.000) times the tokens/s | 1.000 (1.000-1.000) times the time | 50 a round | none |")
    assert "| - | no comparison | - | none | a patched:" in older
    (sentence,) = gpu_runs.firing_of(FIX)
    assert sentence.startswith("vllm 0.33.0 (H200), some requests: 1.000")
    assert len(gpu_runs.served().splitlines()) == 2


def test_a_row_is_a_case_with_the_command_that_repeats_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(e2e_no_harm, "installed", lambda asked: ("vllm", RELEASE))
    about = {"gpu": "NVIDIA H200", "engine": "vllm", "release": RELEASE, "torch": "2.11.0"}
    found = {"models": {FIX: {"fix": FIX}}, "machine": about}
    monkeypatch.setattr(e2e_firing, "run", lambda *asked: (copy.deepcopy(found), [], [f"{FIX}: why"]))
    assert e2e_firing.main(["--fix", FIX, "--out", str(tmp_path)]) == 1
    case = json.loads((tmp_path / "e2e-h200-vllm-0.33.0.json").read_text())["cases"][f"firing {FIX}"]
    assert case["command"] == f"python -m scripts.serve.e2e_firing --engine vllm=={RELEASE} --fix {FIX} --pairs 120"
    assert case["failures"] == [f"{FIX}: why"]
    assert e2e_firing.main(["--list"]) == 0 and FIX in capsys.readouterr().out
