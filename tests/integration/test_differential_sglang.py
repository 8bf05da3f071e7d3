"""A short part of the differential run over servers of sglang: it sees bugs and every mutation of itself, and no harm."""

from itertools import islice

import pytest

from tests.differential import judge, run, space
from tests.differential.sglang import space as part

RELEASE = "0.5.23"


def case(**settings):
    prompts = (40, 9, 100, 60)
    requests = [{"prompt": n, "output": 9, "arrives": at, "common": None} for at, n in enumerate(prompts)]
    requests[3]["common"] = [0, 33]
    for at, request in enumerate(requests):
        request |= {"adapter": (0, 1, 2, 1)[at]} if settings.get("adapters") else {}
        request |= {"image": [5, 20, at]} if settings.get("images") and request["prompt"] > 25 else {}
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    return {
        "engine": "sglang", "release": RELEASE, "settings": part.PLAINEST | named, "requests": requests, "steps": 20, "seed": 1,
    }  # fmt: skip


WINDOWS = case(model="windows", attention_backend="flashinfer")


@pytest.fixture(scope="module")
def sides():
    with run.Sides("sglang", RELEASE) as both:
        yield both


def test_a_known_bug_is_seen_and_its_correction_is_right(sides):
    verdict, _, patched = sides.judge(WINDOWS)
    assert verdict.kind == judge.CORRECTED, verdict
    assert patched["corrections"].keys() == {"sglang.flashinfer-swa-prefill"}
    assert sides.judge(WINDOWS, sabotage="corrections do nothing")[0].kind == judge.MISSED


@pytest.mark.parametrize(
    "right",
    [
        case(speculative_algorithm="EAGLE"),
        case(speculative_algorithm="EAGLE", speculative_eagle_topk=2, page_size=4),
        case(model="windows-sinks", disable_cuda_graph=False, page_size=16),
        case(attention_backend="flashinfer", disable_overlap_schedule=False),
        case(model="gqa", attention_backend="torch_native", enable_mixed_chunk=True, chunked_prefill_size=16),
        case(adapters=2, images=True, disable_cuda_graph=False, enable_mixed_chunk=True),
        case(speculative_algorithm="EAGLE", speculative_adaptive=True, page_size=128, chunked_prefill_size=128),
    ],
    ids=lambda right: " ".join(map(str, (value for name, value in right["settings"].items() if value != part.PLAINEST[name]))),
)
def test_a_healthy_server_is_right_and_not_touched(sides, right):
    verdict, stock, patched = sides.judge(right)
    assert verdict.kind == judge.OK, verdict
    assert len(stock["steps"]) >= 8
    settings = right["settings"]  # drafts in graphs are what FlashAttention 3's tables are widened for
    widened = settings["speculative-algorithm"] is not None and not settings["disable-cuda-graph"]
    assert patched["corrections"].keys() == ({"sglang.fa3-context-limit"} if widened else set())


def test_a_few_drawn_cases(sides):
    cases = islice(space.cases("sglang", RELEASE, 1, {"attention-backend": "fa3", "disable-cuda-graph": True}), 5)
    verdicts = [sides.judge(one)[0] for _, one in cases]
    new = [one for one in verdicts if one.kind == judge.FIND and not one.known]  # the others are right without what is reported
    kinds = {one.kind for one in verdicts}
    assert not new and kinds <= {judge.OK, judge.CORRECTED, judge.REFUSED, judge.FIND} and judge.OK in kinds
