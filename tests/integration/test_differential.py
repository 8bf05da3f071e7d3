"""A short part of the differential run: a known bug is seen, a correction that does nothing too, a healthy release is right."""

import json
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from tests.differential import judge, run, shrink, space

NEWEST = {"vllm": "0.33.0", "sglang": "0.5.23"}
CASES = Path(run.__file__).parent / "cases"


@pytest.fixture(scope="module")
def newest():
    """Both sides of an engine's newest release, started once for all tests."""
    with ExitStack() as started:
        yield cache(lambda engine: started.enter_context(run.Sides(engine, NEWEST[engine])))


@pytest.fixture(scope="module")
def affected():
    with run.Sides("vllm", "0.27.1") as sides:
        yield sides


def test_a_known_bug_is_seen_and_its_correction_is_right(affected):
    case = json.loads((CASES / "vllm-mla-context-order.json").read_text())
    verdict, _, patched = affected.judge(case)
    assert verdict.kind == judge.CORRECTED, verdict
    assert patched["corrections"] == {"vllm.mla-context-order": 1}
    assert affected.judge(case, sabotage="corrections do nothing")[0].kind == judge.MISSED


@pytest.mark.drawn(1)
def test_graphs_on_ranks_that_were_captured_without_a_context_are_corrected():
    case = json.loads((CASES / "vllm-dcp-captured-context.json").read_text())
    with run.Sides("vllm", case["release"], all_fixes=True) as sides:
        verdict, _, patched = sides.judge(case)
    assert verdict.kind == judge.CORRECTED, verdict
    assert set(patched["corrections"]) == {"vllm.dcp-captured-context"}


@pytest.mark.drawn(1)
def test_graphs_that_were_captured_for_one_adapter_are_corrected():
    case = json.loads((CASES / "sglang-captured-adapters.json").read_text())
    with run.Sides("sglang", case["release"]) as sides:
        verdict, _, patched = sides.judge(case)
    assert verdict.kind == judge.CORRECTED, verdict
    assert patched["corrections"]["sglang.lora-captured-segments"] > 0


def test_a_few_cases_of_a_healthy_release(newest):
    # Short prompts beside drafts are not, nor are adapters in graphs for fewer of them
    healthy = {"attention-backend": "FLASH_ATTN", "speculative-method": "none", "specialize-active-lora": False}
    cases = islice(space.cases("vllm", "0.33.0", 1, healthy), 5)
    verdicts = [newest("vllm").judge(case)[0] for _, case in cases]
    assert {verdict.kind for verdict in verdicts} <= {judge.OK, judge.REFUSED}, verdicts
    assert any(verdict.kind == judge.OK for verdict in verdicts)


def test_a_known_bug_is_seen_on_the_former_model_runner():
    plainest = {name: values[0] for name, values in space.space_of("vllm").axes.items()}
    settings = plainest | {
        "attention-backend": "FLASHINFER",
        "attention": "MQA",
        "kv-cache-dtype": "fp8",
        "scales": "checkpoint",
    }
    requests = [{"prompt": 70, "output": 3, "arrives": 0, "common": None}]
    case = {"engine": "vllm", "release": "0.19.1", "settings": settings, "requests": requests, "steps": 10, "seed": 5}
    with run.Sides("vllm", "0.19.1") as sides:
        verdict, _, patched = sides.judge(case)
    assert verdict.kind == judge.CORRECTED, verdict
    assert patched["corrections"] == {"vllm.kv-scale-float": 2}


FP8_ON_RANKS = {
    "attention-backend": "FLASHINFER", "attention": "MQA", "dtype": "float16", "tensor-parallel-size": 2,
    "decode-context-parallel-size": 2, "kv-cache-dtype": "fp8", "kv-cache-dtype-skip-layers": ("0",),
}  # fmt: skip


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("release", "kind", "acted"),
    # 0.27.1 raises there while the step is planned, whatever the corrections do
    [
        ("0.24.0", judge.CORRECTED, {"vllm.dcp-page-counts", "vllm.lse-log-base"}),
        ("0.27.1", judge.FIND, {"vllm.dcp-page-counts"}),
    ],
)
def test_an_fp8_cache_on_ranks_is_no_failure_of_the_fixes_for_ranks(release, kind, acted):
    drawn = space.space_of("vllm")
    settings = {name: values[0] for name, values in drawn.axes.items()} | FP8_ON_RANKS | drawn.of_release(release)
    requests = [{"prompt": 70, "output": 3, "arrives": 0, "common": None}]
    case = {"engine": "vllm", "release": release, "settings": settings, "requests": requests, "steps": 10, "seed": 5}
    with run.Sides("vllm", release) as sides:
        verdict, _, patched = sides.judge(case)
    assert verdict.kind == kind, verdict
    assert set(patched["corrections"]) == acted


def test_lengths_that_the_engine_writes_over_on_the_host_are_a_copy():
    """FlashInfer's builder of 0.29.0 takes the new tokens off them, in place: the sampler, which reads those of the GPU, must
    not hold the prompts for unfinished then."""
    drawn = space.space_of("vllm")
    settings = {name: values[0] for name, values in drawn.axes.items()} | FP8_ON_RANKS
    settings |= {"kv-cache-dtype": "auto", "max-num-batched-tokens": 16}
    requests = [{"prompt": prompt, "output": 2, "arrives": 0, "common": None} for prompt in (16, 3)]
    case = {"engine": "vllm", "release": "0.29.0", "settings": settings, "requests": requests, "steps": 2, "seed": 5}
    with run.Sides("vllm", "0.29.0") as sides:
        verdict, stock, _ = sides.judge(case)
    assert verdict.kind == judge.CORRECTED, verdict
    assert [step["kinds"] for step in stock["steps"]] == [["fresh"], ["decode", "fresh"]]


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("name", "what"),
    [
        # The drafter's first block holds keys of the model's own layer, of another dtype, when a tile of its window reads it
        ("vllm-freed-window-block", "has freed"),
        ("sglang-mixed-chunk-states", "states that nobody wrote"),
        ("vllm-dcp-captured-context", "captured without a context"),
    ],
)
def test_what_a_later_release_mends_is_no_fault_of_a_fix(newest, name, what):
    case = json.loads((CASES / f"{name}.json").read_text())
    with run.Sides(case["engine"], case["release"]) as sides:
        verdict, *_ = sides.judge(case)
    assert verdict.kind == judge.FIND and what in verdict.known.what, verdict
    later, *_ = newest(case["engine"]).judge(case | {"release": NEWEST[case["engine"]]})
    assert later.kind == judge.OK and later.known is None, later


@pytest.mark.drawn(1)
def test_states_of_prompts_beside_decodes_are_kept():
    case = json.loads((CASES / "sglang-mixed-chunk-states.json").read_text())
    with run.Sides("sglang", case["release"], all_fixes=True) as sides:
        verdict, _, patched = sides.judge(case)
    assert verdict.kind == judge.CORRECTED, verdict
    assert patched["corrections"]["sglang.mixed-chunk-states"] > 0


@pytest.fixture(params=sorted(NEWEST))
def stock(request, newest):
    return request.param, newest(request.param).stock


RANKS = {"tensor-parallel-size": 2, "decode-context-parallel-size": 2, "dtype": "float16"}
OWN_CAP = {"attention-backend": "FLASHINFER", "soft-cap": 3.0, "speculative-method": "eagle"}
MTP = {"speculative-method": "mtp", "recurrent": "mamba2"}
CHECKPOINT = {"kv-cache-dtype": "fp8", "scales": "checkpoint"}
OLD_GPU = {"capability": (8, 0)}


@pytest.fixture
def vllm(newest):
    return newest("vllm").stock


def answered(side, release=NEWEST["vllm"], **settings):
    """Whether such a case is drawn, how it ends, and after how many steps."""
    drawn = space.space_of("vllm")
    plainest = {name: values[0] for name, values in drawn.axes.items()} | settings
    requests = [{"prompt": 40, "output": 2, "arrives": 0, "common": None}]
    case = {"engine": "vllm", "release": release, "settings": plainest, "requests": requests, "steps": 2, "seed": 5}
    answer = side.run(case)
    return space.why_not(drawn, release, plainest) is None, answer["ended"], len(answer["steps"])


@pytest.mark.parametrize(
    "settings",
    [
        {"attention-backend": "FLASHINFER", "sinks": True},
        {**OLD_GPU, "attention-backend": "FLASH_ATTN", "scales": "checkpoint"},
        {**OLD_GPU, "attention-backend": "FLASH_ATTN", "sinks": True},
        {**RANKS, "attention": "MQA", "attention-backend": "TRITON_ATTN"},
        {**RANKS, "attention": "MQA", "speculative-method": "eagle", "draft-window": True},
        {**RANKS, "attention": "MQA", "speculative-method": "ngram", "cp-kv-cache-interleave-size": 4},
        {
            **RANKS, "attention": "MLA", "attention-backend": "FLASHMLA", "block-size": 64, "speculative-method": "mtp",
            "cp-kv-cache-interleave-size": 16,
        },
        {"attention-backend": "ROCM_AITER_UNIFIED_ATTN"},
    ],
)  # fmt: skip
def test_what_is_not_drawn_is_what_the_engine_refuses(vllm, settings):
    assert answered(vllm, **settings) == (False, "refused", 0)


NGRAM = {"speculative-method": "ngram"}
WINDOWED = {"attention-backend": "FLASHINFER", "windows": "all"}


@pytest.mark.parametrize(
    ("settings", "ended"),
    [
        ({**NGRAM, "former-model-runner": True}, "done"),
        ({**NGRAM, "former-model-runner": True, "async-scheduling": True}, "refused"),
        (NGRAM, "refused"),
        (WINDOWED, "refused"),
        ({**WINDOWED, "former-model-runner": True}, "refused"),
        ({"attention-backend": "FLASHINFER", "speculative-method": "eagle", "draft-window": True}, "refused"),
        ({**WINDOWED, **OLD_GPU}, "done"),
        (FP8_ON_RANKS, "raised"),
        ({**FP8_ON_RANKS, **OLD_GPU}, "done"),
    ],
)
def test_what_an_older_release_refuses_is_not_drawn_for_it(affected, settings, ended):
    assert answered(affected.stock, affected.release, **settings)[:2] == (ended == "done", ended)


@pytest.mark.parametrize(
    "settings",
    [
        OWN_CAP,
        {**OWN_CAP, "windows": "all", **CHECKPOINT, "kv-cache-dtype-skip-layers": ("sliding_window",)},
        {**OWN_CAP, **CHECKPOINT, "kv-cache-dtype-skip-layers": ("0",)},
        {**OWN_CAP, "recurrent": "mamba2"},
        {**OWN_CAP, **MTP},
        {**OWN_CAP, **MTP, "windows": "all"},
    ],
)
def test_a_soft_cap_of_its_own_ends_flashinfer_at_the_first_batch(vllm, settings):
    assert answered(vllm, **settings) == (False, "raised", 0)


@pytest.mark.parametrize(
    "settings",
    [
        {**OWN_CAP, "attention": "GQA"},
        {**OWN_CAP, "draft-heads": 2},
        {**OWN_CAP, "draft-window": True},
        {**OWN_CAP, "windows": "alternate"},
        {**OWN_CAP, **MTP, "windows": "alternate"},
        {**OWN_CAP, "windows": "all", **CHECKPOINT, "kv-cache-dtype-skip-layers": ("0",)},
        {**OWN_CAP, **MTP, **CHECKPOINT, "kv-cache-dtype-skip-layers": ("0",)},
        {**OLD_GPU, "attention-backend": "FLASHINFER", "kv-cache-dtype": "fp8"},
        {**OLD_GPU, "attention-backend": "TRITON_ATTN", "dtype": "float16", "sinks": True},
        {
            **OLD_GPU, "attention-backend": "FLASH_ATTN", "windows": "all", "kv-cache-dtype": "fp8",
            "kv-cache-dtype-skip-layers": ("sliding_window",),
        },
        {**RANKS, "attention": "MQA", "speculative-method": "ngram"},
        {"max-model-len": 512, "num-gpu-blocks": 24},  # a pool that is too small for one request grows
        {"max-model-len": 512, "num-gpu-blocks": 24, "windows": "alternate", "recurrent": "mamba2"},
    ],
)  # fmt: skip
def test_what_the_engine_serves_is_drawn(vllm, settings):
    assert answered(vllm, **settings) == (True, "done", 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"speculative-method": "eagle", "drafts-by-batch-size": True, "max-num-seqs": 2},
        {"speculative-method": "ngram", "prompt-lookup-min": 6, "former-model-runner": True},
    ],
)
def test_servers_with_drafts_have_steps_without(vllm, settings):
    """By a table on Model Runner V2, which the former one lacks; by n-grams that are not found on the former one alone."""
    settings = {name: values[0] for name, values in space.space_of("vllm").axes.items()} | settings
    assert not space.why_not(space.space_of("vllm"), NEWEST["vllm"], settings)
    requests = [{"prompt": 90, "output": output, "arrives": 0, "common": None} for output in (6, 16)]
    case = {"engine": "vllm", "release": NEWEST["vllm"], "settings": settings, "requests": requests, "steps": 22, "seed": 3}
    answer = vllm.run(case)
    assert judge.judge(answer, answer).kind == judge.OK
    kinds = [set(step["kinds"]) & {"decode", "verify"} for step in answer["steps"]]
    assert {"decode"} in kinds and {"verify"} in kinds


def test_every_way_to_break_the_harness_is_seen(stock):
    engine, side = stock
    server = import_module(f"tests.differential.{engine}.server")
    plainest = {name: values[0] for name, values in space.space_of(engine).axes.items()}
    requests = [
        {"prompt": 70, "output": 9, "arrives": 0, "common": None},
        {"prompt": 33, "output": 3, "arrives": 1, "common": None},
    ]
    others = [{"adapter": 1, "image": [10, 20, 1]}, {"adapter": 2, "image": [10, 20, 2], "common": [0, 33]}]
    seen = {}
    for mutation in server.MUTATIONS:
        settings = plainest | server.SEEN_IN.get(mutation, {})
        named = {"common"} | {name for axis, name in shrink.LEFT_OUT.items() if settings.get(axis)}
        more = [{name: value for name, value in one.items() if name in named and len(named) > 1} for one in others]
        asked = [request | one for request, one in zip(requests, more, strict=True)]
        case = {"engine": engine, "release": NEWEST[engine], "settings": settings, "requests": asked, "steps": 10, "seed": 5}
        whole, broken = side.run(case), side.run(case, mutation=mutation)
        seen[mutation] = judge.judge(whole, whole).kind, judge.judge(broken, broken).sign.partition(" in ")[0]
    assert seen == dict.fromkeys(server.MUTATIONS, (judge.OK, "wrong output"))


REPORTS = "\n".join(path.read_text() for path in (Path(__file__).parents[2] / "docs" / "upstream").glob("*.md"))
#: What the reports to upstream say can be repeated on the newest release, by engine
REPORTED = {
    engine: sorted(
        path
        for path in CASES.glob(f"{engine}-*.json")
        if path.name in REPORTS and json.loads(path.read_text())["release"] == release
    )
    for engine, release in sorted(NEWEST.items())
}


@pytest.mark.parametrize("engine", REPORTED)
def test_what_reports_say_can_be_repeated(newest, engine):
    """The case of each report to upstream goes wrong on the newest release, stock; a fix of it puts it right."""
    assert REPORTED[engine]
    kinds = {path.stem: newest(engine).judge(json.loads(path.read_text()))[0].kind for path in REPORTED[engine]}
    assert {name: kind for name, kind in kinds.items() if kind not in (judge.FIND, judge.CORRECTED)} == {}
