"""The harness of tests/gpu/serving against a stand-in for an engine, and its models against transformers."""

from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnfix.patches.catalogue import BY_ID, FIXES
from scripts.evidence import summaries
from tests.gpu.serving import answers, cases, child, models, processes, test_cost, test_http, test_sglang, test_vllm, turns
from tests.gpu.serving.cases import OFF, PATCHED, STOCK, Case, Same, Side
from tests.gpu.serving.conversations import cold_and_cached, image, tokens
from tests.gpu.serving.processes import Ended, Server
from tests.gpu.serving.turns import Length, Plan

CHILD = [sys.executable, str(Path(__file__).parents[2] / "support/serving_child.py"), "vllm"]
FIX = "vllm.mla-context-order"
PAIRED = {"fixes": (FIX,), "corrects": {PATCHED: (FIX,)}, "red": {STOCK: ("cached",)}}


def pairs(server):
    given: dict = {}
    for what, answer in cold_and_cached(1, {"": (40, 60)}, 2)(server):
        given.setdefault(what, []).append(answer)
    yield from (("cached", both) for both in zip(given["cold"], given["cached"]))


@pytest.fixture
def corrected(monkeypatch):
    """Records of attnfix in patched servers; a test may change the counts."""
    fixes = {FIX: {"state": "effective", "reason": "", "calls": 9, "corrections": 3}}
    records = [{"process": 1, "alive": True, "others": {}, "fixes": fixes}]
    monkeypatch.setattr(Server, "status", lambda server: [] if server.environment.get("ATTNFIX") == "0" else records)
    monkeypatch.setattr(cases.time, "sleep", lambda seconds: None)
    return fixes[FIX]


def tried(tmp_path, faults="stock", **changes):
    case = Case("made", "vllm", model=lambda path: path, ask=pairs, variables={"FAULT": faults}, **PAIRED)
    return cases.tried(replace(case, **changes), tmp_path, "a.py::test[made]", CHILD)


def test_red_to_green_is_kept_with_its_figures(tmp_path, corrected):
    assert tried(tmp_path) == []
    record = json.loads((tmp_path / "e2e-h100-vllm-0.25.1.json").read_text())
    summary = summaries.of(record, "e2e-h100-vllm-0.25.1.json", "abc")
    assert summary["cases"]["made"] == {"stock": "cached 1", "attnfix": "cached 0"}
    assert summary["commands"] == ["python -m pytest 'a.py::test[CASE]'"] and summary["corrected"] == [FIX]
    assert "noise of the engine" in (tmp_path / "logs/made-stock.log").read_text()


@pytest.mark.parametrize(
    "faults, changes, word",
    [
        ("", {}, "stock, cached: 0 is not wrong"),
        ("stock patched", {}, "patched, cached: 1 is above"),
        ("stock dies", {}, "stock: answer: ValueError: an engine's own error"),
        ("stock", {"sides": {STOCK: Side(OFF, ends=""), PATCHED: Side()}}, "stock: it served to the end"),
        ("stock dies", {"sides": {STOCK: Side(OFF, ends="another"), PATCHED: Side()}}, "an engine's own error"),
        ("stock", {"corrects": {}, "fixes": ("vllm.lse-log-base",)}, "vllm.lse-log-base corrected nothing"),
        ("stock", {"corrects": {PATCHED: ()}}, "expected nothing"),
        ("stock patched", {"free": (PATCHED,), "sides": {STOCK: Side(), PATCHED: Side()}}, "stock: corrected by"),
        ("stock", {"rounding": -1.0}, "is above -1"),
        ("stock patched", {"yardstick": PATCHED, "free": (PATCHED,), "wrong": 2}, "1 times patched's is not wrong"),
        ("stock patched", {"free": (PATCHED,), "same": (Same(PATCHED, STOCK, ("none",)),)}, "no answer to compare"),
    ],
)  # fmt: skip
def test_each_check_can_fail(tmp_path, corrected, faults, changes, word):
    (sentence,) = tried(tmp_path, faults, **changes)
    assert word in sentence


def test_a_side_that_must_end_may(tmp_path, corrected):
    sides = {STOCK: Side(OFF, ends="own error"), PATCHED: Side()}
    assert tried(tmp_path, "stock dies", sides=sides, same=()) == []


def test_answers_of_two_sides_are_compared_to_the_bit(tmp_path, corrected):
    ask, same = cold_and_cached(1, {"": (40,)}, 2), (Same(PATCHED, STOCK, ("cold",)), Same(PATCHED, STOCK, ("cached",)))
    sides = {"reference": Side(OFF, {"a": 1}), STOCK: Side(OFF), PATCHED: Side()}
    wrong = tried(tmp_path, ask=ask, sides=sides, reference="reference", red={}, free=(STOCK,), same=same, rounding=2)
    assert wrong == ["patched, cached: 2 of 2 answers are not those of stock"]


def test_measures():
    listed = [{"tokens": [5, 6], "logprobs": {"0": a, "1": -2.0}} for a in (-1.0, -1.5, math.nan)]
    assert [answers.difference(listed[0], one) for one in listed] == [0, 0.5, math.inf]
    assert answers.difference(listed[0], {"logprobs": {"9": -4.0, "0": -1.0}}) == 2  # at least 4 - 2
    assert math.isnan(answers.second(listed[0], listed[1] | {"tokens": [4, 6]})) and math.isnan(answers.worst([1, math.nan]))
    assert answers.distance(listed[0], listed[1]) == pytest.approx(0.5 / 2**0.5)
    assert answers.equal_tokens(listed[0], {"tokens": [5, 7]}) == 1 and answers.inverse_mean([0, 0]) == math.inf
    two = [{"tokens": [t, 6], "logprobs": [{"0": -1.0}, {"0": s}]} for t, s in ((5, -1.0), (5, -3.0), (4, -3.0))]
    assert [answers.first_two(two[0], one) for one in two] == [0, 2, 0]
    found = answers.ratio([2.0, 8.0, 4.0], [1.0, 2.0, 2.0])
    assert found["ratio"] == pytest.approx(2 * 2 ** (1 / 3)) and found["low"] < 2 < found["high"] and found["pairs"] == 3
    with pytest.raises(ValueError):
        answers.ratio([1.0], [1.0, 2.0])


def test_a_server_that_is_gone_says_so(tmp_path):
    with Server([sys.executable, "-c", "raise SystemExit(7)"], "gone", tmp_path, {}) as server, pytest.raises(Ended, match="7"):
        server.start(model="x")
    assert processes.errors("raise TypeError\n(Core) AssertionError\r\nValueError: no") == ["AssertionError", "ValueError: no"]


# Turns


@pytest.fixture
def measured(tmp_path, corrected, monkeypatch):
    monkeypatch.setattr(turns.time, "sleep", lambda seconds: None)

    def measure(fault="", **changes):
        plan = Plan("vllm", {}, {"FAULT": fault}, **changes)
        part = {"before": [], "prompts": [[1, 2, 3]] * 5, "singles": [[4, 5]], "new_tokens": 4}
        length = Length(2, 4)
        return turns.measure(plan, "m", tmp_path, lambda at, number: part, length, tmp_path, CHILD), length

    return measure


def test_servers_in_turns(measured):
    seen, length = measured()
    assert turns.invalid(seen) == [] == turns.costly(seen, length, first_token=False) and length.pairs == 16
    assert seen["ratio"]["tokens_per_s"]["pairs"] == 16 and set(seen["started"]) == set(seen["processes"])
    wrong = test_cost.harm("vllm", "0.25.1", seen)
    assert any(f"something was corrected, by {FIX}" in one for one in wrong)


@pytest.mark.parametrize("fault, word", [("odd", "not the tokens of its own first"), ("slow", "the interval begins at 0.9")])
def test_faults_in_turns(measured, fault, word):
    seen, length = measured(fault)
    wrong = turns.invalid(seen) or turns.costly(seen, length, first_token=False)
    assert word in wrong[0] and ("invalid" in turns.without_figures(seen, turns.invalid(seen))) == (fault == "odd")


def test_turns_are_fair():
    found = turns.order(8)
    places = {key: sorted(order.index(key) for order in found) for key in turns.KEYS}
    assert all(place == [0, 0, 1, 1, 2, 2, 3, 3] for place in places.values())
    assert sum(order.index(("a", STOCK)) < order.index(("a", PATCHED)) for order in found) == 4


def test_a_row_counts_where_its_fix_corrects_in_each_round():
    row = next(row for row in test_cost.ROWS if row.fix == FIX)
    counts = {"a patched": [{}, {FIX: 2}, {FIX: 2}]}
    (sentence,) = test_cost.idle(row, {"corrections": counts})
    assert "in each round [2, 0]" in sentence and not test_cost.idle(replace(row, once=True), {"corrections": counts})


def test_every_default_fix_of_the_newest_releases_has_a_row_or_a_reason():
    needed = {fix for engine, some in test_cost.RELEASES.items() for one in some for fix in cases.affected(engine, one)}
    rows = {row.fix for row in test_cost.ROWS}
    assert {fix.id for fix in FIXES if fix.default} & needed <= rows | set(test_cost.LEFT_OUT)
    assert not rows & set(test_cost.LEFT_OUT)


@pytest.mark.parametrize("row", test_cost.ROWS, ids=str)
def test_a_row_is_of_a_release_that_has_the_bug_and_its_requests_fit(row):
    assert row.fix in cases.affected(row.engine, row.release) and set(row.without) <= set(BY_ID)
    sent = row.traffic()(0, 0)
    room = row.settings.get("max_model_len", row.settings.get("context_length", 16384))
    assert max(map(len, sent["prompts"])) < room and sent["computed"] > 0


def test_cases_name_fixes_and_the_step_of_order_is_shared():
    every = (*test_vllm.CASES, *test_sglang.CASES)
    assert all(set(case.fixes) <= set(BY_ID) for case in every) and len({str(case) for case in every}) == len(every)
    assert all({*case.red, *case.corrects, *case.free} <= set(case.all_sides) for case in every)
    _, alone, company = test_vllm.order_prompts()["chunked"]
    rest = len(alone[0]) % test_vllm.STEP
    assert company[0] is alone[0] and rest + len(company[1]) <= test_vllm.STEP and 512 < len(company[1]) < rest


def test_a_page_must_count_what_the_records_do():
    found = {"requests": 1, "page": {"after": {f'attnfix_corrections_total{{fix="{FIX}"}}': 2.0}}, "processes": []}
    assert len(test_http.failures_of_page(found, FIX)) == 3
    case = test_http.PROBED[0]
    told = {STOCK: {"runs": [{"verdict": "holds"}]}, PATCHED: {"runs": [{"verdict": "holds"}]}}
    assert test_http.failures(case, told) == ["vllm-order, stock: holds, expected broken"]


# Models

SMALL = {
    "qwen3-next": models.Size(4, 128, 256, 4),
    "qwen3.5": models.Size(4, 128, 256, 4),
    "nemotron-h": models.Size(8, 128, 256, 8),
}


@pytest.mark.parametrize("family", models.FAMILIES)
def test_the_checkpoint_is_that_of_its_architecture(family, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    made = models.make(family, SMALL.get(family, models.Size(3, 256, 256, 2)))(tmp_path)
    kinds = {"qwen3.5": transformers.AutoModelForImageTextToText, "bert": transformers.BertModel}
    kind = kinds.get(family, transformers.AutoModelForCausalLM)
    no_pooler = {"add_pooling_layer": False} if family == "bert" else {}
    model, loaded = kind.from_pretrained(made, dtype=torch.float64, output_loading_info=True, **no_pooler)
    assert not any(loaded.values()), "names or shapes that are not the architecture's"
    if family == "gemma":
        prompt = tokens(random.Random(1), 600)
        with torch.no_grad():
            right = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        assert (models.exact(made, [prompt], device="cpu")[0][-1] - right).abs().max() < 1e-3  # its norms are of 32 bits


def test_images_are_those_of_the_prompt():
    torch = pytest.importorskip("torch")
    prompt = [5, *image(3), 7, *image(2), 9]
    seen = child.images(prompt)
    assert seen["image_grid_thw"].tolist() == [[1, 6, 6], [1, 4, 4]] and seen["pixel_values"].shape == (52, 1536)
    assert torch.equal(seen["pixel_values"], child.images(prompt)["pixel_values"]) and child.images([5, 7]) is None
    asked, engine = [], child.Sglang()
    answer = {"meta_info": {"cached_tokens": 0}, "output_ids": [1]}
    engine.llm = SimpleNamespace(generate=lambda **given: asked.append(given) or [answer] * len(given["input_ids"]))
    engine.generate([[5, 7]], 1)
    engine.generate([[5, 7], prompt], 1)
    assert "image_data" not in asked[0] and [len(one) for one in asked[1]["image_data"]] == [0, 1]


def test_one_position_of_an_image_shows_in_the_answers_of_that_model(tmp_path, monkeypatch):
    """What stock does, in the reference: the case's limits lie between it and rounding."""
    pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.qwen3_5.modeling_qwen3_5")
    (case,) = (case for case in test_sglang.CASES if case.name == "images")
    made, draw = case.model(tmp_path), random.Random(1)
    prompts = [test_sglang.shown(draw, 30, 16, 4), tokens(draw, 60)]
    right = models.in_float32(made, prompts, "cpu")
    rotary = modeling.Qwen3_5TextRotaryEmbedding
    forward = rotary.forward
    monkeypatch.setattr(rotary, "forward", lambda self, x, at: forward(self, x, at[:1].expand_as(at)))
    seen = models.in_float32(made, prompts, "cpu")
    pairs = [[{"logprobs": {str(at): float(p) for at, p in enumerate(one)}} for one in both] for both in zip(right, seen)]
    assert case.measure(*pairs[0]) > case.wrong and case.measure(*pairs[1]) == 0


def test_awq_weights_are_what_an_awq_kernel_reads():
    torch = pytest.importorskip("torch")
    from attnfix.patches.lab import emulators

    assert models.AWQ_ORDER == emulators.AWQ_ORDER
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(3)).bfloat16()
    parts = models.awq(weight)
    read = emulators.awq_gemm(torch.eye(256, dtype=torch.float16), parts["qweight"], parts["scales"], parts["qzeros"], 8)
    assert ((read.float() - weight.float().t()).abs() <= 0.51 * parts["scales"].float().repeat_interleave(128, 0)).all()
