"""The core of the differential run, without an engine: what answers mean, what is drawn, how a case gets smaller."""

import ast
import importlib
import math
from itertools import islice
from pathlib import Path

import pytest
import torch

from attnfix.patches.catalogue import FIXES
from tests.differential import judge, protocol, reference, shrink, space, spared
from tests.fixes.rows import DIFFERENTIAL

FOLDER = Path(space.__file__).parent
ENGINES = sorted(path.parent.name for path in FOLDER.glob("*/space.py"))
NEWEST = {"sglang": "0.5.23", "vllm": "0.33.0"}


def answer(errors=(0.001,), ended="done", bits="a", corrected_by=None, **more):
    steps = [
        {"kinds": ["decode"], "metadata": "m", "outputs": [
            {"name": "layer", "error": error, "tolerance": (0.01, 0.02), "bits": bits, "at": "row 0"}]}
        for error in errors
    ]  # fmt: skip
    return {"ended": ended, "steps": steps, "corrected_by": corrected_by or {}, **more}


RAISED = {"error": {"type": "ValueError", "message": "no", "where": "a.py:f:3"}}


@pytest.mark.parametrize(
    ("stock", "patched", "kind"),
    [
        (answer(), answer(), judge.OK),
        (answer(ended="refused", why="ValueError: x"), answer(ended="refused", why="ValueError: x"), judge.REFUSED),
        (answer(), answer(ended="refused", why="ValueError: x"), judge.HARM),
        (answer(), answer([0.5], bits="b", corrected_by={"a.fix": 0}), judge.HARM),
        (answer(), answer(bits="b"), judge.HARM),
        (answer(), answer(bits="b", corrected_by={"a.fix": 0}), judge.OK),
        (answer(), answer([], "raised", **RAISED), judge.HARM),
        (answer(), answer([], "hung"), judge.HARM),
        (answer([0.001, 0.5]), answer([0.001, 0.001], corrected_by={"a.fix": 1}), judge.CORRECTED),
        (answer([0.5]), answer([0.5], corrected_by={"a.fix": 0}), judge.MISSED),
        (answer([0.5]), answer([0.5]), judge.FIND),
        (answer([float("nan")]), answer([float("nan")]), judge.FIND),
        (answer([0.5, 0.001]), answer([0.5, 0.001], corrected_by={"a.fix": 1}), judge.FIND),
        (answer([0.001, 0.5]), answer([0.5, 0.5], bits="b", corrected_by={"a.fix": 0}), judge.HARM),
        (answer([], "raised", **RAISED), answer([], "raised", **RAISED), judge.FIND),
        (answer([], "died"), answer([], "died"), judge.FIND),
        (answer([], "hung"), answer(), judge.FIND),
        (answer(), answer(missing={"a.fix": "conflict"}), judge.HARM),
    ],
)
def test_what_two_answers_mean(stock, patched, kind):
    assert judge.judge(stock, patched).kind == kind


WRONG = [0.001, 0.5]  # in its second step, by another bug


@pytest.mark.parametrize(
    ("stock", "patched", "says"),
    [
        (answer(), answer(corrections={"a.fix": 2}), "a.fix counted"),
        (answer(), answer(corrected_by={"a.fix": -1}), "a.fix counted"),
        (answer(), answer(bits="b"), "step 0 has other bits"),
        (answer(), answer([0.001, 0.001]), "the numbers of steps differ"),
        (answer(), answer([], "raised", **RAISED), "patched only: ValueError"),
        (answer(), answer(bits="b", corrected_by={"a.fix": 0}), "a.fix counted; step 0 has other bits"),
        (answer(), answer([], "refused", why="no"), "stock done, patched refused"),
        (answer([], "refused", why="no"), answer(), "stock refused, patched done"),
        (answer([], "raised", **RAISED), answer([], "raised", error=RAISED["error"] | {"where": "wrapper.py:run:1"}), None),
        (answer(WRONG), answer(WRONG), None),
        (answer(WRONG), answer(WRONG, corrected_by={"a.fix": 1}), None),
        (answer(WRONG), answer(WRONG, corrected_by={"a.fix": 0}), "a.fix counted"),
        (answer(WRONG), answer(WRONG, bits="b"), "step 0 has other bits"),
        (answer(WRONG), answer([0.001, 0.001], bits="b"), "a fix that counted nothing corrected it"),
        (answer([0.001, 0.5, 0.5]), answer([0.001, 0.001, 0.5]), "a fix that counted nothing corrected it"),
        (answer(WRONG), answer([0.001, 0.001], corrected_by={"a.fix": 1}), "a.fix corrected it"),
        (answer(WRONG), answer([0.001], "raised", **RAISED), None),
        (
            answer(WRONG),
            answer([0.001], "raised", error=RAISED["error"] | {"where": "vllm/x/wrap.py:f:1"}),
            "nothing counted",
        ),
        (answer(WRONG), answer([0.001], "died"), "nothing counted, and died"),
        (answer([], "raised", **RAISED), answer([], "raised", error=RAISED["error"] | {"type": "KeyError"}), "nothing counted"),
        (answer([], "raised", **RAISED), answer([], "died"), "nothing counted, and died"),
        (answer([], "raised", **RAISED), answer([0.5]), "nothing counted, and step 0"),
        (answer([0.5, 0.5], "raised", **RAISED), answer([0.5, 0.5]), None),
        (answer(), answer(missing={"a.fix": "failed"}), "a.fix failed"),
        (answer(WRONG), answer([0.001], "raised", corrected_by={"a.fix": 1}, **RAISED), "a.fix counted, and ValueError"),
    ],
)
def test_where_nothing_is_needed_any_difference_is_harm(stock, patched, says):
    found = spared.harm(stock, patched)
    assert found is None if says is None else found.startswith(says), found


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_family_pins_is_of_the_space(engine):
    axes = space.space_of(engine).axes
    for name, settings in spared.FAMILIES[engine].items():
        assert all(value in axes[axis] for axis, value in settings.items()), name
        case = next(spared.drawn(engine, NEWEST[engine], name, seed=1))
        assert spared.spared(case), f"{name}: no fix is spared"


KNOWN = protocol.Known("reported", {"scales": "none"})


def test_what_may_be_to_blame_is_asked_of_what_the_patched_side_has_first_wrong():
    asked = []

    def says(wrong, kinds, error):
        asked.append((wrong, kinds, error))
        return KNOWN

    corrected = {"corrected_by": {"a.fix": 0}}
    missed = judge.judge(answer([0.5, 0.5]), answer([0.001, 0.4], bits="b", **corrected), says)
    assert (missed.kind, missed.known) == (judge.MISSED, KNOWN)
    found = judge.judge(answer([], "raised", **RAISED), answer([], "raised", **RAISED), says)
    assert (found.kind, found.known) == (judge.FIND, KNOWN)
    assert asked == [("layer", ("decode",), 0.4), ("ValueError: no", (), 0.0)]


@pytest.mark.parametrize(
    ("kind", "without", "known_there", "now", "named"),
    [
        (judge.MISSED, judge.CORRECTED, None, judge.FIND, True),
        (judge.MISSED, judge.OK, None, judge.FIND, True),
        (judge.MISSED, judge.FIND, KNOWN, judge.FIND, True),
        (judge.MISSED, judge.FIND, None, judge.FIND, False),  # something else is wrong, too, but nothing was missed
        (judge.MISSED, judge.MISSED, None, judge.MISSED, False),
        (judge.MISSED, judge.HARM, None, judge.MISSED, False),
        (judge.MISSED, judge.REFUSED, None, judge.MISSED, False),
        (judge.FIND, judge.OK, None, judge.FIND, True),
        (judge.FIND, judge.FIND, None, judge.FIND, False),
        (judge.FIND, judge.HARM, None, judge.FIND, False),
    ],
)
def test_a_known_bug_is_to_blame_if_the_case_is_right_without_it(kind, without, known_there, now, named):
    found = judge.blamed(judge.Verdict(kind, "wrong", known=KNOWN), judge.Verdict(without, "too", known=known_there))
    assert (found.kind, found.known == KNOWN) == (now, named)


@pytest.mark.parametrize(
    ("off", "whole", "now"),
    [
        (["a.fix"], judge.CORRECTED, judge.FIND),
        (["a.fix"], judge.FIND, judge.FIND),
        (["a.fix"], judge.MISSED, judge.MISSED),
        (["a.fix"], judge.HARM, judge.MISSED),
        ([], judge.CORRECTED, judge.MISSED),
    ],
)
def test_what_a_fix_corrects_that_is_off_was_not_missed_by_another(off, whole, now):
    assert judge.left_off(judge.Verdict(judge.MISSED), judge.Verdict(whole), off).kind == now


def known(engine, release, settings, wrong, kinds=(), error=math.inf):
    """What `space.known` says of the plainest case with these settings."""
    drawn = space.space_of(engine)
    return drawn.known(release, {name: values[0] for name, values in drawn.axes.items()} | settings, wrong, kinds, error)


SKIPPED = {"attention-backend": "FLASHINFER", "scales": "checkpoint", "kv-cache-dtype-skip-layers": ("0",)}
HYBRID = {"recurrent": "mamba2", "windows": "alternate"}
SINKS = {"decode-context-parallel-size": 2, "sinks": True}
OTHER_DTYPE = "ValueError: The dtype of k torch.float16 does not match torch.float8_e4m3fn, specified in plan function."
FP8_OUTPUT = "AssertionError: FP8 output is not supported in fa2/fa3 backends yet"
WINDOWS = {"kv-cache-dtype-skip-layers": ("sliding_window",)}


@pytest.mark.parametrize(
    ("settings", "wrong", "report"),
    [
        (SKIPPED, "model.layers.0.self_attn.attn of rank 1", None),  # fixes correct both
        (SKIPPED, "model.layers.1.self_attn.attn", None),
        (SKIPPED, "model.layers.2.mixer", None),
        (SKIPPED | {"scales": "none", "kv-cache-dtype": "fp8"}, OTHER_DTYPE, None),
        (SKIPPED, "IndexError: out of bounds", None),
        (SINKS, "model.layers.1.self_attn.attn of rank 0", "dcp-sinks"),
        (SINKS, "model.layers.2.self_attn.attn of rank 0", None),
        (SINKS | {"decode-context-parallel-size": 1}, "model.layers.1.self_attn.attn", None),
        (SINKS | {"attention-backend": "TRITON_ATTN"}, "model.layers.1.self_attn.attn of rank 0", None),
        (SINKS, "ValueError: no", None),
        (
            {"decode-context-parallel-size": 2, "speculative-method": "mtp"},
            "model.layers.2.mixer of rank 1",
            "dcp-mamba-drafts",
        ),
        ({"decode-context-parallel-size": 2}, "model.layers.2.mixer of rank 1", None),
        ({"speculative-method": "mtp"}, "model.layers.2.mixer", None),
        (HYBRID | {"attention-backend": "FLASHINFER"}, "model.layers.2.mixer", "mamba-chunk-blocks"),
        (HYBRID, "model.layers.2.mixer", None),
        (HYBRID | {"speculative-method": "eagle", "num-speculative-tokens": 1}, "model.layers.2.mixer", None),  # a fix, too
        (HYBRID, "model.layers.0.self_attn.attn", None),
        ({"decode-context-parallel-size": 2, "kv-cache-dtype": "fp8"}, OTHER_DTYPE, "dcp-fp8-query"),
        ({"decode-context-parallel-size": 2} | SKIPPED, FP8_OUTPUT, "dcp-fp8-query"),
        (SKIPPED, FP8_OUTPUT, None),
        ({"decode-context-parallel-size": 2}, OTHER_DTYPE, None),
        ({"kv-cache-dtype": "fp8"}, OTHER_DTYPE, None),
        ({"decode-context-parallel-size": 2, "kv-cache-dtype": "fp8"}, "model.layers.0.self_attn.attn of rank 0", None),
    ],
)
def test_what_is_known_of_vllm_is_what_its_reports_say(settings, wrong, report):
    found = known("vllm", "0.33.0", settings, wrong, ("decode",))
    assert (found and found.what.partition("docs/upstream/vllm-")[2].partition(".md")[0]) == report


@pytest.mark.parametrize(("release", "there"), [("0.19.1", True), ("0.20.0", False)])
def test_a_layer_left_unquantised_is_known_to_be_planned_as_fp8_up_to_the_release_that_mends_it(release, there):
    found = known("vllm", release, SKIPPED, OTHER_DTYPE, error=0.0)
    assert (found is not None and "planned as FP8" in found.what) == there


@pytest.mark.parametrize(
    ("settings", "wrong", "report"),
    [
        ({"model": "windows-sinks"}, "layer 1", "fa3-tree-sinks"),
        ({"model": "windows-sinks"}, "draft layer 0", None),
        ({"model": "windows-sinks", "speculative-eagle-topk": 1}, "layer 1", None),
        ({"model": "mla", "page-size": 16}, "IndexError: index 33 is out of bounds", "fa3-mla-tree-pages"),
        ({"model": "mla"}, "layer 0", None),
        ({"model": "mla"}, "AssertionError: EAGLE draft kv_indices row (size", "draft-kv-context-limit-twins"),
        ({"model": "windows", "attention-backend": "triton"}, "layer 0", "triton-tree-window"),
        ({"model": "windows", "prefill-attention-backend": "triton"}, "layer 0", "triton-tree-window"),
        ({"model": "mha", "attention-backend": "triton"}, "layer 0", None),
    ],
)
def test_what_is_known_of_trees_is_what_the_reports_of_sglang_say(settings, wrong, report):
    trees = {"speculative-algorithm": "EAGLE", "speculative-eagle-topk": 2} | settings
    found = known("sglang", "0.5.23", trees, wrong, ["verify"], 0.1)
    assert (found and found.what.partition("docs/upstream/sglang-")[2]) == (report and f"{report}.md)")


NONE = "TypeError: unsupported operand type(s) for {}: 'Tensor' and 'NoneType'"
LATENTS = (
    "RuntimeError: einsum(): subscript d has size 576 for operand 1 which does not broadcast with previously seen size 192"
)
DRAFTS_ON_LATENTS = {"model": "mla", "prefill-attention-backend": "triton", "speculative-attention-mode": "decode"}
VERIFIED = {"model": "windows", "attention-backend": "flashinfer"}
CHUNKS = {"enable-mixed-chunk": True, "speculative-algorithm": None}
FLASHMLA = {"model": "mla", "attention-backend": "flashmla", **CHUNKS}
MIXED_STATES = {"model": "hybrid", **CHUNKS}
CAPTURED = {"model": "windows", "adapters": 2, "disable-cuda-graph": False, "speculative-algorithm": None}


@pytest.mark.parametrize(
    ("release", "settings", "wrong", "kinds", "mended"),
    [
        ("0.5.17", DRAFTS_ON_LATENTS, LATENTS, "", "0.5.18"),
        ("0.5.18", DRAFTS_ON_LATENTS, LATENTS, "", None),
        ("0.5.17", DRAFTS_ON_LATENTS | {"prefill-attention-backend": None}, LATENTS, "", None),
        ("0.5.17", DRAFTS_ON_LATENTS | {"speculative-algorithm": None}, LATENTS, "", None),
        ("0.5.17", DRAFTS_ON_LATENTS | {"speculative-attention-mode": "prefill"}, LATENTS, "", None),
        ("0.5.17", DRAFTS_ON_LATENTS, "RuntimeError: einsum(): another shape", "", None),
        ("0.5.17", DRAFTS_ON_LATENTS, "layer 0", "verify", None),
        ("0.5.13.post1", VERIFIED, NONE.format("-"), "", "0.5.14"),
        ("0.5.14", VERIFIED, NONE.format("-"), "", None),
        ("0.5.13.post1", VERIFIED | {"speculative-algorithm": None}, NONE.format("-"), "", None),
        ("0.5.13.post1", VERIFIED | {"prefill-attention-backend": "fa3"}, NONE.format("-"), "", None),  # which verifies
        ("0.5.13.post1", VERIFIED | {"model": "mha"}, NONE.format("-"), "", None),
        ("0.5.18", FLASHMLA, NONE.format("+"), "", "0.5.19"),
        ("0.5.17", FLASHMLA, "RuntimeError: shape '[2, -1, 2, 192]' is invalid for input of size 9600", "", "0.5.19"),
        ("0.5.19", FLASHMLA, NONE.format("+"), "", None),
        ("0.5.18", FLASHMLA | {"enable-mixed-chunk": False}, NONE.format("+"), "", None),
        ("0.5.18", FLASHMLA | {"prefill-attention-backend": "fa3"}, NONE.format("+"), "", None),
        ("0.5.13.post1", CAPTURED, "adapters of layer 0", "decode", "0.5.14"),
        ("0.5.13.post1", CAPTURED | {"disable-cuda-graph": True}, "adapters of layer 0", "decode", None),
        ("0.5.14", CAPTURED, "adapters of layer 0", "decode", None),
        ("0.5.22", MIXED_STATES, "layer 1", "cached decode", "0.5.23"),
        ("0.5.23", MIXED_STATES, "layer 1", "cached decode", None),
        ("0.5.22", MIXED_STATES, "layer 0", "cached decode", None),
        ("0.5.22", MIXED_STATES, "layer 1", "chunk decode", None),
        ("0.5.22", MIXED_STATES | {"disable-radix-cache": True}, "layer 1", "cached decode", None),
    ],
)
def test_what_a_later_release_of_sglang_mends_is_known_before_it(release, settings, wrong, kinds, mended):
    settings = {"speculative-algorithm": "EAGLE"} | settings
    found = known("sglang", release, settings, wrong, kinds.split())
    assert (found and found.what.partition("(mended in ")[2].rstrip(")")) == mended
    without = {"speculative-algorithm": None} if not found else found.without
    assert known("sglang", release, settings | without, wrong, kinds.split()) is None


def test_a_pool_that_has_no_slots_left_is_known_where_it_is_small():
    wrong = "RuntimeError: Prefill out of memory. Try to lower your batch size."
    found = known("sglang", "0.5.23", {"max-total-tokens": 320}, wrong)
    assert found and known("sglang", "0.5.23", found.without, wrong) is None


def test_states_that_somebody_wrote_are_not_known_to_be_wrong_beside_decodes():
    assert known("sglang", "0.5.22", MIXED_STATES, "layer 1", ["cached", "decode"], 0.5) is None


@pytest.mark.parametrize(("own", "there"), [("fa3", True), ("trtllm_mha", True), ("torch_native", False)])
def test_a_file_of_scales_is_known_to_leave_less_than_backends_read(own, there):
    settings = {"attention-backend": own}
    assert known("sglang", "0.5.23", settings, "layer 0", ["decode"], 0.5) is None
    found = known("sglang", "0.5.23", settings | {"quantization-param-path": "scales"}, "layer 0", ["decode"], 0.5)
    assert (found is not None and found.without == {"quantization-param-path": None}) == there


@pytest.mark.parametrize(
    ("release", "settings", "wrong", "kinds", "there"),
    [
        ("0.29.0", {}, "0", "chunk replayed", True),
        ("0.29.0", {}, "0", "decode replayed verify", True),
        ("0.29.0", {}, "0", "decode replayed", False),  # one row of each request is right in any graph
        ("0.29.0", {}, "0", "chunk decode", False),
        ("0.29.0", {}, "2", "chunk replayed", False),
        ("0.31.0", {}, "0", "chunk replayed", False),
        ("0.24.0", {"former-model-runner": True}, "0", "chunk replayed", False),
        ("0.29.0", {"cudagraph-mode": "FULL_DECODE_ONLY"}, "0", "chunk replayed", False),
        ("0.29.0", {"attention-backend": "TRITON_ATTN"}, "0", "chunk replayed", False),
    ],
)
def test_a_graph_of_a_mixed_batch_is_known_to_be_wrong_up_to_the_release_that_mends_it(release, settings, wrong, kinds, there):
    settings = {"cudagraph-mode": "FULL"} | settings
    found = known("vllm", release, settings, f"model.layers.{wrong}.self_attn.attn", kinds.split(), 0.5)
    assert (found is not None) == there


FREED = {"windows": "all", "kv-cache-dtype": "fp8", "kv-cache-dtype-skip-layers": ("0",)}


@pytest.mark.parametrize(
    ("release", "settings", "error", "there"),
    [
        ("0.29.0", FREED, math.inf, True),
        ("0.32.0", HYBRID | {"enable-prefix-caching": False}, math.inf, True),
        ("0.33.0", FREED, math.inf, False),
        ("0.29.0", FREED, 0.5, False),  # numbers have no weight before a window
        ("0.29.0", FREED | {"kv-cache-dtype-skip-layers": ()}, math.inf, False),  # whatever the block holds is keys in FP8
        ("0.29.0", FREED | {"windows": "none"}, math.inf, False),
        ("0.29.0", HYBRID | {"attention-backend": "TRITON_ATTN"}, math.inf, False),
        ("0.29.0", HYBRID | {"attention-backend": "FLASHINFER", "capability": (8, 0)}, math.inf, False),
        ("0.31.0", HYBRID | {"attention-backend": "FLASHINFER"}, math.inf, True),
        ("0.24.0", FREED | {"former-model-runner": True}, math.inf, False),
    ],
)
def test_a_freed_block_is_known_to_be_read_where_a_tile_begins_before_the_window(release, settings, error, there):
    found = known("vllm", release, settings, "model.layers.0.self_attn.attn", ("chunk",), error)
    assert (found is not None and "freed" in found.what) == there


LOCKED = (
    "AssertionError: Workspace is locked but allocation from 'flash_attn.py:1617:{}' requires 0.01 MB, current size is 0.00"
)
CAPTURED = {"cudagraph-mode": "FULL_DECODE_ONLY"}
IDLE = {"attention-backend": "FLASH_ATTN_MLA", "attention": "MLA", "dummy-batches": True}
NO_LENGTHS = "TypeError: 'NoneType' object is not subscriptable"


@pytest.mark.parametrize(
    ("release", "settings", "wrong", "kinds", "mended"),
    [
        ("0.26.0", CAPTURED, "model.layers.0.self_attn.attn of rank 0", "decode replayed", "0.33.0"),
        ("0.32.0", CAPTURED, "model.layers.1.self_attn.attn of rank 1", "decode replayed", "0.33.0"),
        ("0.33.0", CAPTURED, "model.layers.0.self_attn.attn of rank 0", "decode replayed", None),
        ("0.25.1", CAPTURED, "model.layers.0.self_attn.attn of rank 0", "decode replayed", None),
        ("0.32.0", CAPTURED, "model.layers.0.self_attn.attn of rank 0", "decode", None),
        ("0.32.0", CAPTURED, "model.layers.2.mixer of rank 0", "decode replayed", None),
        ("0.32.0", CAPTURED, LOCKED.format("_forward_with_dcp"), "", "0.33.0"),
        ("0.32.0", CAPTURED, LOCKED.format("forward"), "", None),
        ("0.32.0", {}, LOCKED.format("_forward_with_dcp"), "", None),
        (
            "0.28.0",
            CAPTURED | {"former-model-runner": True},
            "model.layers.0.self_attn.attn of rank 0",
            "decode replayed",
            None,
        ),
        ("0.32.0", CAPTURED | {"attention-backend": "FLASHINFER"}, "model.layers.0.self_attn.attn", "decode replayed", None),
        ("0.32.0", CAPTURED | {"decode-context-parallel-size": 1}, "model.layers.0.self_attn.attn", "decode replayed", None),
        ("0.29.0", IDLE, NO_LENGTHS, "", "0.30.0"),
        ("0.30.0", IDLE, NO_LENGTHS, "", None),
        ("0.29.0", IDLE | {"dummy-batches": False}, NO_LENGTHS, "", None),
        ("0.29.0", IDLE, "TypeError: other", "", None),
    ],
)
def test_what_a_later_release_of_vllm_mends_on_ranks_is_known_before_it(release, settings, wrong, kinds, mended):
    found = known("vllm", release, {"decode-context-parallel-size": 2} | settings, wrong, kinds.split(), 0.5)
    assert (found and found.what.partition("(mended in ")[2].rstrip(")")) == mended


@pytest.mark.parametrize(
    ("settings", "wrong", "without"),
    [
        (HYBRID | {"attention-backend": "FLASHINFER", "attention": "MHA", "speculative-method": "eagle", "soft-cap": 3.0},
         "model.layers.2.mixer", {"windows": "none", "draft-window": False, "soft-cap": 0.0}),
        (HYBRID | {"kv-cache-dtype": "fp8", "windows": "all", "kv-cache-dtype-skip-layers": ("sliding_window",),
                   "speculative-method": "eagle", "draft-heads": 2, "capability": (8, 0), "enable-prefix-caching": False},
         "model.layers.4.self_attn.attn", {"recurrent": "none", "draft-heads": 1}),
    ],
)  # fmt: skip
def test_a_case_without_a_known_bug_is_one_that_the_engine_serves(settings, wrong, without):
    drawn = space.space_of("vllm")
    plainest = {name: values[0] for name, values in drawn.axes.items()}
    found = drawn.known("0.31.0", plainest | settings, wrong, ("chunk",), math.inf)
    assert found is not None and found.without == without
    assert space.why_not(drawn, "0.31.0", drawn.of_release("0.31.0") | plainest | settings | without) is None


def test_errors_between_right_and_wrong_are_counted_apart():
    verdict = judge.judge(answer([0.015]), answer([0.015]))
    assert verdict.kind == judge.OK and verdict.in_band


@pytest.mark.parametrize("engine", ENGINES)
def test_cases_follow_from_the_seed_and_cover_every_pair_soon(engine):
    drawn = space.space_of(engine)
    first = [case for _, case in islice(space.cases(engine, NEWEST[engine], 7), 150)]
    again = [case for _, case in islice(space.cases(engine, NEWEST[engine], 7), 150)]
    assert first == again
    for case in first:
        assert drawn.impossible(case["settings"]) is None
        assert case["steps"] >= 8
        for at, request in enumerate(case["requests"]):
            assert request["prompt"] >= 1 and request["prompt"] + request["output"] <= drawn.limit(case["settings"])
            if request["common"]:
                other, shared = request["common"]
                assert other < at and shared <= request["prompt"]
            assert 0 <= request.get("adapter", 0) <= case["settings"].get("adapters", 0)
            begin, length, _ = request.get("image") or (1, 1, 1)
            assert ("image" not in request or case["settings"]["images"]) and begin >= 1 <= length
            assert begin + length <= request["prompt"] or "image" not in request
    pairs = set().union(*(space.pairs_of(drawn, case["settings"]) for case in first))
    possible = space.possible_pairs(drawn, NEWEST[engine])
    assert pairs <= possible < space.all_pairs(drawn, NEWEST[engine])
    assert len(possible - pairs) <= 0.01 * len(possible)  # some exclude each other only together with two more settings


@pytest.mark.parametrize("engine", ENGINES)
def test_every_fix_says_where_it_must_be_tried(engine):
    known = importlib.import_module(f"tests.differential.{engine}.space")
    rows = {fix.id: DIFFERENTIAL[fix.id] for fix in FIXES if fix.engine == engine}
    for settings in rows.values():
        if not isinstance(settings, str):
            assert all(value in known.SPACE.axes[name] for name, value in settings.items())
            assert known.SPACE.impossible(settings) is None


def test_a_case_shrinks_to_what_makes_it_wrong():
    _, case = next(pair for pair in space.cases("vllm", "1.0", 3) if len(pair[1]["requests"]) > 3)
    case["requests"][2]["prompt"] = 40

    def wrong(candidate):
        return any(request["prompt"] >= 40 for request in candidate["requests"]) and candidate["steps"] >= 3

    smallest = shrink.shrink(space._plain(case), wrong)
    plain = {name: space._plain(values[0]) for name, values in space.space_of("vllm").axes.items()}
    assert smallest["settings"] == plain and smallest["steps"] == 3
    assert smallest["requests"] == [{"prompt": 40, "output": 1, "arrives": 0, "common": None}]


MORE = [
    {"prompt": 40, "output": 1, "arrives": 0, "common": None, "adapter": 2, "image": [8, 20, 1]},
    {"prompt": 50, "output": 1, "arrives": 1, "common": [0, 40], "adapter": 1, "image": [8, 20, 2]},
]


@pytest.mark.parametrize(
    ("matters", "left"),
    [
        (lambda case: True, {}),
        (lambda case: any(one.get("adapter") == 1 for one in case["requests"]), {"adapter": 1}),
        (lambda case: any(one.get("image", [0, 0])[1] >= 8 for one in case["requests"]), {"image": [8, 8, 2]}),
    ],
)
def test_adapters_and_images_are_left_out_of_a_shrunk_case_where_they_do_not_matter(matters, left):
    axes = space.space_of("sglang").axes
    settings = {name: space._plain(values[0]) for name, values in axes.items()} | {"adapters": 2, "images": True}
    case = {"engine": "sglang", "release": "0.5.23", "settings": settings, "requests": MORE, "steps": 8, "seed": 1}
    smallest = shrink.shrink(case, matters)
    (request,) = smallest["requests"]
    assert {name: value for name, value in request.items() if name in ("adapter", "image")} == left
    assert smallest["settings"]["adapters"] == (2 if "adapter" in left else 0)
    assert smallest["settings"]["images"] == ("image" in left)


def test_what_adapters_and_images_change_shares_nothing():
    from tests.differential.sglang.texts import Texts

    def request(common=None, **more):
        return {"prompt": 40, "output": 1, "arrives": 0, "common": common, **more}

    given = [
        request(adapter=1), request([0, 30], adapter=2), request([1, 20], adapter=1), request([0, 30]),
        request([3, 40], image=[8, 20, 1]), request([4, 40], image=[8, 20, 2]), request([5, 35], image=[8, 20, 1]),
    ]  # fmt: skip
    texts = Texts({"seed": 5, "requests": given}, 512, values=lambda image: [1000 + image[2]] * image[1])
    assert [texts.tokens[0][at] == texts.tokens[1][at] for at in (0, 29, 30)] == [True, True, False]

    def alike(one, other):
        rows = [texts.rows("k", 0, number, 1, 4, torch.float16) for number in (one, other)]
        return next((at for at, pair in enumerate(zip(*rows)) if not torch.equal(*pair)), len(rows[0]))

    assert [alike(*pair) for pair in ((0, 1), (0, 2), (0, 3), (3, 4), (4, 5), (4, 6))] == [0, 20, 0, 8, 8, 35]
    assert texts.whatever_the_adapter()._common[1] == (0, 30)


def _kernel(q, k, v, dtype):
    return reference.attention(q, k, v, range(len(k) - len(q), len(k)), scale=q.shape[-1] ** -0.5).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens", [2, 17, 256])
def test_a_lost_key_is_wrong_and_rounding_is_right(dtype, tokens):
    draw = torch.Generator().manual_seed(tokens)
    q, k, v = (torch.randn(tokens, 2, 32, generator=draw).to(dtype) for _ in "qkv")
    true = reference.attention(q, k, v, range(tokens), scale=32**-0.5)
    rounded = reference.compare("layer", true.to(dtype), true)
    assert rounded.error <= rounded.tolerance.right
    lost = reference.attention(q, k[1:], v[1:], range(-1, tokens - 1), scale=32**-0.5)
    assert reference.compare("layer", lost.to(dtype), true).error >= rounded.tolerance.wrong


@pytest.mark.parametrize("tokens", [2, 17, 256])
def test_weights_rounded_to_fp8_are_right_and_a_scale_left_out_is_wrong(tokens):
    draw, narrow, at = torch.Generator().manual_seed(tokens), torch.float8_e4m3fn, [tokens - 1]
    k, v = (torch.randn(tokens, 2, 32, generator=draw).to(narrow).to(torch.bfloat16) for _ in "kv")
    q = torch.randn(1, 2, 32, generator=draw).to(narrow).to(torch.bfloat16)
    true = reference.attention(q, k, v, at, scale=32**-0.5)
    beside = reference.of_narrow_weights(q, k, v, at, scale=32**-0.5, narrow=narrow, cached=tokens)

    def kernel(scale, keys=slice(None)):
        scores = torch.einsum("qhd,khd->qhk", q.double(), k[keys].double()) * scale
        weights = (scores - scores.amax(-1, keepdim=True)).exp().float().to(narrow).double()
        out = torch.einsum("qhk,khd->qhd", weights, v[keys].double()) / weights.sum(-1, keepdim=True)
        return reference.compare("layer", out.to(torch.bfloat16), true, beside=beside)

    rounded, scaled = kernel(32**-0.5), kernel(2 * 32**-0.5)
    assert rounded.error <= rounded.tolerance.right
    assert scaled.error >= scaled.tolerance.wrong
    fresh = reference.of_narrow_weights(q, k, v, at, scale=32**-0.5, narrow=narrow, cached=0)
    assert not fresh.any()


def test_bfloat16_and_fp8_are_rounded_in_the_interpreter(monkeypatch):
    from triton import language as tl
    from triton.runtime import interpreter

    from tests.differential import rounding

    for home, name in ((interpreter, "_convert_float"), (interpreter.ReduceOps, "apply")):
        monkeypatch.setattr(home, name, getattr(home, name))
    for name in ("binary_op", "unary_op", "create_dot"):
        monkeypatch.setattr(interpreter.InterpreterBuilder, name, getattr(interpreter.InterpreterBuilder, name))
    rounding.install()
    given = torch.tensor([0.49, 1.96, -0.031, 0.0, 500.0, 2.0**-10 * 1.01])
    for target, dtype in ((tl.float8e4nv, torch.float8_e4m3fn), (tl.bfloat16, torch.bfloat16)):
        bits = interpreter._convert_float(given.numpy(), tl.float32, target, None)
        wanted = given.clamp(-448, 448) if dtype.itemsize == 1 else given
        assert torch.equal(torch.from_numpy(bits).view(dtype).float(), wanted.to(dtype).float())
    one, other = (torch.randn(4, 4, dtype=torch.bfloat16) for _ in "ab")
    handles = [interpreter.TensorHandle(x.view(torch.uint16).numpy(), tl.bfloat16) for x in (one, other)]
    builder = interpreter.interpreter_builder
    product = builder.binary_op(*handles, lambda a, b: a * b).data
    assert torch.equal(torch.from_numpy(product).view(torch.bfloat16), one * other)
    zero = interpreter.TensorHandle(torch.zeros(4, 4).numpy(), tl.float32)
    dot = builder.create_dot(*handles, zero, None, 0).data
    assert torch.allclose(torch.from_numpy(dot), one.float() @ other.float())


def test_a_row_without_keys_and_one_that_is_no_number_are_seen():
    true = torch.zeros(2, 1, 4)
    assert reference.compare("layer", true.half(), true).error == 0
    assert reference.compare("layer", torch.full((2, 1, 4), 1e-3).half(), true).error == float("inf")
    assert reference.compare("layer", torch.full((2, 1, 4), float("nan")).half(), torch.ones(2, 1, 4)).error == float("inf")


def test_objects_of_an_engine_come_out_of_its_constructors():
    """An object made by hand, or by `__new__`, holds what we believe the engine puts into it."""
    for path in FOLDER.rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"__new__", "SimpleNamespace", "MagicMock", "Mock"}, path


def test_settings_that_are_fixed_may_all_run_in_the_interpreter():
    fixed = {"attention-backend": "TRITON_ATTN", "dtype": "float16"}
    for _, case in islice(space.cases("vllm", "1.0", 7, fixed), 6):
        assert space.space_of("vllm").interpreted(case["settings"])


def test_a_tree_of_drafts_is_laid_out_and_followed():
    """Two branches at each of two steps: 0 and 1 hang on the root, 2 and 3 on 0, 4 and 5 on 1; four of them are taken."""
    from tests.differential.sglang import trees

    taken, hangs, length, drafted = torch.tensor([[0, 1, 2, 5]]), torch.tensor([[-1, 0, 1]]), 3, 5
    mask = torch.ones(drafted * (length + drafted), dtype=torch.bool)
    positions = torch.zeros(drafted, dtype=torch.long)
    index, child, sibling = torch.full((3, 1, drafted), -1)
    trees.build_tree_kernel_efficient(
        hangs, taken, torch.tensor([length]), mask, positions, index, child, sibling, 2, 3, drafted, 0
    )
    assert positions.tolist() == [3, 4, 4, 5, 5]
    rows = mask.view(drafted, -1)
    assert rows[:, :length].all()
    seen = [row.nonzero().flatten().tolist() for row in rows[:, length:]]
    assert seen == [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]
    assert child.tolist() == [[1, 3, 4, -1, -1]] and sibling.tolist() == [[-1, 2, -1, -1, -1]]
    predicts, accepted, count = torch.full((drafted,), -1), torch.full((1, 3), -1), torch.zeros(1, dtype=torch.long)
    candidates, said = torch.tensor([[7, 8, 9, 10, 11]]), torch.tensor([[9, 0, 11, 0, 12]])
    trees.verify_tree_greedy(predicts, accepted, count, candidates, index, child, sibling, said)
    assert accepted.tolist() == [[0, 2, 4]] and count.tolist() == [2]
    assert [int(predicts[row]) for row in (0, 2, 4)] == [9, 11, 12]


def test_what_hangs_on_what_is_read_from_the_links_of_a_tree():
    from tests.differential.sglang import rows

    found = rows.tree([1, 3, 4, -1, -1], [-1, 2, -1, -1, -1], [7, 8, 9, 10, 11])
    assert found.depths == [0, 1, 1, 2, 2]
    assert [row.nonzero().flatten().tolist() for row in found.above] == [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]


def test_branches_of_a_tree_propose_other_tokens():
    from tests.differential.sglang.texts import Texts

    request = {"prompt": 9, "output": 8, "arrives": 0, "common": None}
    texts = Texts({"seed": 5, "requests": [request]}, 512)
    first = [texts.candidates(0, at, {}) for at in range(9, 17)]
    right = [said.index(texts.tokens[0][at]) for at, said in enumerate(first, 9) if texts.tokens[0][at] in said]
    assert set(right) == {0, 1} and all(len(set(said)) == 2 for said in first)
    assert texts.candidates(0, 12, {11: 500}) != texts.candidates(0, 12, {11: 501})


def test_a_chain_of_drafts_is_laid_out_as_the_proofs_have_it():
    from attnfix.patches.lab import emulators
    from tests.differential.sglang import trees

    laid_out = []
    for build in (trees.build_tree_kernel_efficient, emulators.build_tree_kernel_efficient):
        mask, positions = torch.ones(4 * (5 + 4) + 4 * (2 + 4), dtype=torch.bool), torch.zeros(8, dtype=torch.long)
        links = torch.full((3, 2, 4), -1)
        chain = torch.tensor([[0, 1, 2]] * 2), torch.tensor([[-1, 0, 1]] * 2)
        build(chain[1], chain[0], torch.tensor([5, 2]), mask, positions, *links, 1, 3, 4, 0)
        laid_out.append((mask.tolist(), positions.tolist(), links.tolist()))
    assert laid_out[0] == laid_out[1]
