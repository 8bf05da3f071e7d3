"""The end-to-end cases' own arithmetic: steps that are shared, the plugin, and what each report calls a failure."""

from __future__ import annotations

import copy
import math
import sys
from importlib.metadata import distributions

import pytest

import scripts.serve.gpu_e2e_sglang as sglang_cases
import scripts.serve.gpu_e2e_vllm as cases
from scripts.serve import (
    e2e,
    e2e_http,
    e2e_vllm,
    plugins,
    ragged_stand_in,
    sglang_draft_lengths,
    sglang_fp8_prefix,
    sglang_verify,
    sglang_window_decode,
    sglang_windows,
    vllm_q_scale,
)
from scripts.serve.e2e_vllm import FORMER, FORMER_PATCHED
from scripts.serve.gpu_e2e_vllm import BASE, CONTEXTS, DCP, EMPTY, ORDER, PADDED, PAGES, PATCHED, QUANTIZED, STOCK


def test_the_long_prompt_comes_last_in_a_shared_step():
    sent = cases.order_prompts()
    (long,), (same, *fresh) = sent["chunked"]["alone"], sent["chunked"]["company"]
    rest = len(long) % cases.STEP
    assert long is same and rest + sum(map(len, fresh)) <= cases.STEP and 512 < max(map(len, fresh)) < rest
    (prefix,), (ahead, cached) = sent["cached"]["before"], sent["cached"]["alone"]
    _, short, asked = sent["cached"]["company"]
    # One token of the prompt ahead, which decodes by then; a block of the cache holds up to 128 tokens
    assert asked is cached and cached[: len(prefix)] == prefix and len(ahead) % cases.STEP == 0
    assert 512 < len(short) < len(cached) - len(prefix) and 1 + len(short) + len(cached) - len(prefix) + 128 <= cases.STEP


# The plugin


def test_the_plugin_is_found_as_vllm_finds_it(tmp_path, monkeypatch):
    (found,) = distributions(path=[str(plugins.package(tmp_path / "plugin", ragged_stand_in))])
    (point,) = found.entry_points.select(group="vllm.general_plugins")
    assert found.metadata["Name"] == ragged_stand_in.NAME == point.name
    monkeypatch.syspath_prepend(str(tmp_path / "plugin"))
    monkeypatch.delitem(sys.modules, "ragged_stand_in", raising=False)
    assert point.load().__code__.co_filename == str(tmp_path / "plugin" / "ragged_stand_in.py")


def test_noise_lies_in_the_rows_without_keys_alone():
    torch = pytest.importorskip("torch")
    lens, keys = (3, 2, 4, 1), (5, 0, 1, 0)
    q_at, kv_at = (torch.tensor([0, *n]).cumsum(0).int() for n in (lens, keys))
    out, lse = torch.full((10, 2, 4), 0.5).bfloat16(), torch.full((10, 2), 0.25)
    noisy, noisy_lse = ragged_stand_in.leave_unwritten(out, lse, q_at, kv_at)
    without = torch.tensor([n == 0 for n in keys]).repeat_interleave(torch.tensor(lens))
    assert torch.equal(noisy[~without], out[~without]) and torch.equal(noisy_lse[~without], lse[~without])
    assert (noisy[without] >= 1).all() and (noisy_lse[without] >= 2).all() and noisy.dtype == out.dtype
    assert not torch.equal(ragged_stand_in.leave_unwritten(out, lse, q_at, kv_at)[0], noisy)


def test_the_stand_in_returns_base_2_and_what_was_not_written(monkeypatch):
    torch = pytest.importorskip("torch")
    from types import ModuleType

    from attnfix.patches.lab import emulators

    flash: ModuleType = ModuleType("vllm.v1.attention.backends.fa_utils")
    flash.flash_attn_varlen_func = emulators.flash_attn_varlen_func
    flash.get_flash_attn_version = lambda head_size: 3
    for name in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, flash.__name__, flash)
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(n, 2, d, generator=draw).bfloat16() for n, d in ((6, 24), (9, 24), (9, 16)))
    lens = {"cum_seq_lens_q": torch.tensor([0, 2, 6]).int(), "cum_seq_lens_kv": torch.tensor([0, 9, 9]).int()}
    shared = {"max_q_len": 4, "max_kv_len": 9, "bmm1_scale": 0.2, "bmm2_scale": 1.0, "is_causal": False, "enable_pdl": False}
    out = torch.zeros(6, 2, 16).bfloat16()
    result, lse = ragged_stand_in.trtllm_ragged_attention_deepseek(q, k, v, **lens, **shared, return_lse=True, out=out)
    expected, natural = emulators.attention(q[:2], k, v, 0.2)
    assert result is out and torch.allclose(out[:2].double(), expected, atol=0.02) and (out[2:] >= 1).all()
    assert torch.allclose(lse[:2].double() * math.log(2), natural, atol=1e-4) and lse.is_contiguous()
    alone = ragged_stand_in.trtllm_ragged_attention_deepseek(q, k, v, **lens, **shared, return_lse=False, out=out)
    assert alone is out


def test_the_error_that_ended_an_engine(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "ImportError: a warning\nEngineCore encountered a fatal error.\n  AttributeError: no 'weight'\nEngineDeadError: x\n"
    )
    assert cases.error_of(log) == "AttributeError: no 'weight'"
    log.write_text("all is well")
    assert cases.error_of(log) is None


# What is a failure


def process(**corrected):
    fixes = {fix: {"state": "effective", "calls": 9, "corrections": count} for fix, count in corrected.items()}
    return [{"process": 1, "alive": True, "fixes": fixes}]


def answers(first):
    return {"tokens": [5], "logprobs": {"0": first, "1": -2.0}}


def ordered(difference, processes=(), shift=0.0):
    pair = {"alone": answers(-1.0 + shift), "company": answers(-1.0 + shift - difference)}
    compared = {"chunked": e2e.compare(pair["alone"], pair["company"])}
    return {"answers": {"chunked": pair}, "compared": compared, "processes": list(processes)}


IN_ORDER = {STOCK: ordered(0.4), PATCHED: ordered(0.0, process(**{ORDER: 2})), "v1 runner": ordered(0.01)}


@pytest.mark.parametrize(
    "side, bad, word",
    [
        (STOCK, ordered(0.1), "no difference"),
        (STOCK, ordered(0.4, process()), "was active"),
        (PATCHED, ordered(0.0), "corrected by nothing"),
        (PATCHED, ordered(0.0, process(**{ORDER: 0})), "corrected by nothing"),
        (PATCHED, ordered(0.0, process(**{ORDER: 1, BASE: 1})), "corrected by ['vllm.lse-log-base', 'vllm.mla"),
        (PATCHED, ordered(0.2, process(**{ORDER: 1})), "alone and in company differ"),
        (PATCHED, ordered(math.nan, process(**{ORDER: 1})), "alone and in company differ"),
        (PATCHED, ordered(0.0, process(**{ORDER: 1}), shift=0.3), "differs from stock"),
        (PATCHED, ordered(0.0, [process(**{ORDER: 1})[0] | {"alive": False}]), "counts as ended"),
        ("v1 runner", ordered(0.2), "alone and in company differ"),
    ],
)
def test_each_check_of_order_can_fail(side, bad, word):
    assert cases.order_failures(IN_ORDER) == []
    (sentence,) = cases.order_failures(IN_ORDER | {side: bad})
    assert word in sentence


def served(difference, backend, processes=(), cached=(*CONTEXTS, 0, 0)):
    one = {"difference": difference, "in_common": 20, "equal_tokens": 8}
    return {"compared": {"all requests": one}, "backend": backend, "cached": list(cached), "processes": list(processes)}


RAGGED = "TRTLLM_RAGGED"
EMPTIED = {
    "reference": {"backend": "FLASH_ATTN", "cached": [*CONTEXTS, 0, 0], "processes": []},
    STOCK: served(1.0, RAGGED),
    EMPTY: served(0.3, RAGGED, process(**{EMPTY: 1})),
    BASE: served(0.9, RAGGED, process(**{BASE: 1})),
    PATCHED: served(0.01, RAGGED, process(**{EMPTY: 1, BASE: 1})),
}


@pytest.mark.parametrize(
    "side, bad, word",
    [
        (STOCK, served(0.1, RAGGED), "no difference"),
        (EMPTY, served(0.1, RAGGED, process(**{EMPTY: 1})), "no difference"),
        (BASE, served(0.1, RAGGED, process(**{BASE: 1})), "no difference"),
        (EMPTY, served(0.3, RAGGED, process(**{EMPTY: 1, BASE: 1})), "corrected by"),
        (PATCHED, served(0.01, RAGGED, process(**{EMPTY: 1})), "corrected by"),
        (PATCHED, served(0.06, RAGGED, process(**{EMPTY: 1, BASE: 1})), "differs from the reference"),
        (PATCHED, served(math.inf, RAGGED, process(**{EMPTY: 1, BASE: 1})), "differs from the reference"),
        (STOCK, served(1.0, "FLASH_ATTN"), "served by FLASH_ATTN"),
        (STOCK, served(1.0, RAGGED, cached=[0] * 9), "found in the cache"),
    ],
)
def test_each_check_of_empty_can_fail(side, bad, word):
    assert cases.empty_failures(EMPTIED) == []
    (sentence,) = cases.empty_failures(EMPTIED | {side: bad})
    assert word in sentence


FLASH = "FLASH_ATTN"
WITH_2 = {
    "reference": EMPTIED["reference"], STOCK: served(1.0, FLASH), PATCHED: served(0.01, FLASH, process(**{PADDED: 1})),
}  # fmt: skip


@pytest.mark.parametrize(
    "side, bad, word",
    [
        (STOCK, served(0.1, FLASH), "no difference"),
        (STOCK, served(1.0, FLASH, process()), "was active"),
        (STOCK, served(1.0, FLASH, cached=[0] * 9), "found in the cache"),
        (PATCHED, served(0.01, FLASH, process(**{PADDED: 0})), "corrected by nothing"),
        (PATCHED, served(0.01, FLASH, process(**{PADDED: 1, EMPTY: 1})), "corrected by"),
        (PATCHED, served(0.06, FLASH, process(**{PADDED: 1})), "differs from the reference"),
    ],
)
def test_each_check_of_padded_can_fail(side, bad, word):
    assert cases.padded_failures(WITH_2) == []
    (sentence,) = cases.padded_failures(WITH_2 | {side: bad})
    assert word in sentence


def on_ranks(short, long=0.01, processes=(), equal=8):
    one = {"difference": short, "in_common": 20, "equal_tokens": equal}
    compared = {"on one rank": one, "on both ranks": {"difference": long, "in_common": 20, "equal_tokens": 8}}
    return {"compared": compared, "processes": list(processes)}


ON_RANKS = {
    "reference": {"compared": {}, "processes": []}, STOCK: on_ranks(math.inf, equal=1),
    PATCHED: on_ranks(0.02, processes=process(**{DCP: 1})),
}  # fmt: skip


@pytest.mark.parametrize(
    "side, bad, word",
    [
        (STOCK, on_ranks(0.1), "no difference"),
        (STOCK, on_ranks(1.0, long=0.3), "on both ranks: differs"),
        (STOCK, on_ranks(1.0, equal=0), "first new token is another"),
        (STOCK, on_ranks(1.0, processes=process()), "was active"),
        (PATCHED, on_ranks(0.02, processes=process(**{DCP: 0})), "corrected by nothing"),
        (PATCHED, on_ranks(math.inf, processes=process(**{DCP: 1})), "on one rank: differs"),
    ],
)
def test_each_check_of_dcp_can_fail(side, bad, word):
    assert cases.dcp_failures(ON_RANKS) == []
    (sentence,) = cases.dcp_failures(ON_RANKS | {side: bad})
    assert word in sentence


def paged(in_chunks, processes=(), in_one=0.01):
    one = {"difference": in_chunks, "in_common": 20, "equal_tokens": 8}
    return {"compared": {"in one step": one | {"difference": in_one}, "in chunks": one}, "processes": list(processes)}


ON_PAGES = {
    "reference": {"compared": {}, "processes": []}, STOCK: paged(2.0, in_one=1.7), PAGES: paged(0.4, process(**{PAGES: 3})),
    PATCHED: paged(0.03, process(**{PAGES: 3, BASE: 1})),
}  # fmt: skip


@pytest.mark.parametrize(
    "side, bad, word",
    [
        (STOCK, paged(0.1, in_one=1.7), "in chunks: no difference"),
        (STOCK, paged(2.0), "in one step: no difference"),
        (PAGES, paged(0.1, process(**{PAGES: 3})), "no difference"),
        (PATCHED, paged(0.03, process(**{PAGES: 3})), "corrected by"),
        (PATCHED, paged(math.nan, process(**{PAGES: 3, BASE: 1})), "in chunks: differs"),
    ],
)
def test_each_check_of_dcp_pages_can_fail(side, bad, word):
    assert cases.dcp_pages_failures(ON_PAGES) == []
    (sentence,) = cases.dcp_pages_failures(ON_PAGES | {side: bad})
    assert word in sentence


WITH_DRAFTS = {
    "reference": {"compared": {}, "processes": []},
    STOCK: {"compared": {}, "ended": "start: the process ended with 1", "said": "AssertionError", "processes": []},
    PATCHED: {"compared": {"in one step": {"difference": 0.02}}, "processes": process(**{cases.DCP_SPEC: 1})},
}


@pytest.mark.parametrize(
    "side, change, word",
    [
        (STOCK, {"said": "ValueError: no such backend"}, "no assertion of the builder; it did not start"),
        (PATCHED, {"processes": process(**{cases.DCP_SPEC: 0})}, "corrected by nothing"),
        (PATCHED, {"compared": {"in one step": {"difference": 0.3}}}, "differs from the reference"),
    ],
)
def test_each_check_of_dcp_spec_can_fail(side, change, word):
    assert cases.dcp_spec_failures(WITH_DRAFTS) == []
    (sentence,) = cases.dcp_spec_failures(WITH_DRAFTS | {side: WITH_DRAFTS[side] | change})
    assert word in sentence
    started = WITH_DRAFTS | {STOCK: {"compared": {}, "processes": []}}
    assert cases.dcp_spec_failures(started) == ["stock: no assertion of the builder; it started"]


def beside(*differences, processes=(), other_bits=()):
    seen = zip(cases.BESIDE, (*differences, *[0.03] * (len(cases.BESIDE) - len(differences))))
    same = {scenario: scenario not in other_bits for scenario in cases.BESIDE}
    compared = {scenario: {"difference": one} for scenario, one in seen}
    return {"compared": compared, "processes": list(processes), "same bits": same}


SPLIT = process(**{cases.DCP_SPLIT: 12})
ON_SPLIT = {
    "reference": {"compared": {}, "processes": []}, STOCK: beside(2.0, 1.5, 1.0), FORMER: beside(0.03, 0.03, 1.0),
    **dict.fromkeys((PATCHED, FORMER_PATCHED, cases.COMPILED), beside(processes=SPLIT, other_bits=list(cases.BESIDE)[:1])),
}  # fmt: skip
ON_SPLIT[FORMER_PATCHED] = beside(processes=SPLIT, other_bits=list(cases.BESIDE)[2:3])


@pytest.mark.parametrize(
    "side, bad, word",
    [
        (STOCK, beside(0.03, 1.5, 1.0), "behind a new one: no difference"),
        (STOCK, beside(2.0, 0.03, 1.0), "behind a decode, too: no difference"),
        (STOCK, beside(2.0, 1.5, 1.0, 0.3), "in order: differs"),
        (FORMER, beside(), "in a free row: no difference"),
        (FORMER, beside(0.3, 0.03, 1.0), "behind a new one: differs"),
        (PATCHED, beside(0.3, processes=SPLIT), "behind a new one: differs"),
        (PATCHED, beside(processes=process(**{cases.DCP_SPLIT: 0})), "corrected by nothing"),
        (PATCHED, beside(processes=SPLIT, other_bits=("in order",)), "in order: not the bits of stock"),
        (FORMER_PATCHED, beside(processes=SPLIT, other_bits=("behind a new one",)), "not the bits of stock, former runner"),
        (cases.COMPILED, {"compared": {}, "processes": [], "ended": "start"}, "compiled: corrected by nothing"),
    ],
)
def test_each_check_of_dcp_split_can_fail(side, bad, word):
    assert cases.dcp_split_failures(ON_SPLIT) == []
    (sentence,) = cases.dcp_split_failures(ON_SPLIT | {side: bad})
    assert word in sentence


def test_sides_on_two_ranks_have_their_settings_and_are_compared(tmp_path, monkeypatch):
    """What a side was asked, what it has of its own, and whose bits it has."""
    monkeypatch.setattr(e2e, "gpus", lambda: 2)
    asked = []

    class Asked:
        def __init__(self, name):
            self.name, self.log = name, tmp_path / name
            self.log.write_text("INFO vLLM is using nccl==2.30.7\n" if name == "a" else "")

        def ask(self, do, prompts, at, together, new_tokens):
            asked.append((self.name, [len(prompt) for prompt in prompts], new_tokens))
            other = self.name == "b" and len(prompts) > 1
            return {"answers": [{"tokens": [1], "logprobs": {"1": -0.5 - other}} for _ in prompts]}

    def serve(sides, work):
        seen.update(sides)
        return {name: work(Asked(name)) for name in sides}

    seen = {}
    found = cases.on_two_ranks(
        serve, {"a": {}, "b": {}}, {}, {}, {"one": (3,), "two": (2, 2)}, at=0, new_tokens={"two": [1, 4]},
        own={"b": {"enforce_eager": False}}, beside={"b": "a"},
    )["sides"]  # fmt: skip
    assert [side.settings["enforce_eager"] for side in seen.values()] == [True, True, False]
    assert ("a", [2, 2], [1, 4]) in asked and ("b", [3], e2e_vllm.NEW_TOKENS) in asked
    assert found["b"]["same bits"] == {"one": True, "two": False} and "same bits" not in found["a"]
    assert found["b"]["compared"]["two"]["difference"] == 1 and found["reference"]["compared"] == {}
    assert cases.two_ranks_failures({"a": found["a"]}, set()) == [] and found["a"]["nccl"] == "2.30.7"
    assert cases.two_ranks_failures({"b": found["b"] | {"compared": {}}}, set()) == ["b: vLLM has not loaded NCCL"]


SAME = {"difference": 0.0, "in_common": 20, "equal_tokens": 8}
CRASHED = {
    STOCK: {"ended": "EngineDeadError", "said": "AttributeError", "processes": []},
    PATCHED: {"cached": 4096, "said": None, "compared": {"cached": SAME}, "processes": process(**{QUANTIZED: 4})},
}


@pytest.mark.parametrize(
    "side, bad, same, word",
    [
        (STOCK, {"cached": 4096, "compared": {"cached": SAME}, "processes": []}, SAME, "second request was answered"),
        (PATCHED, CRASHED[PATCHED] | {"processes": process()}, SAME, "corrected by nothing"),
        (PATCHED, CRASHED[PATCHED] | {"cached": 0}, SAME, "nothing in the cache"),
        (PATCHED, CRASHED[PATCHED] | {"compared": {"cached": SAME | {"difference": 0.2}}}, SAME, "cached and uncached"),
        (STOCK, CRASHED[STOCK], SAME | {"difference": 0.2}, "uncached, it differs"),
    ],
)
def test_each_check_of_quantized_can_fail(side, bad, same, word):
    assert cases.quantized_failures(CRASHED, SAME) == []
    (sentence,) = cases.quantized_failures(CRASHED | {side: bad}, same)
    assert word in sentence


def test_a_patched_engine_that_ends_is_a_failure():
    ended = {"ended": "EngineDeadError", "said": "AttributeError", "processes": process(**{QUANTIZED: 4})}
    (sentence,) = cases.quantized_failures(CRASHED | {PATCHED: ended}, SAME)
    assert "was not answered" in sentence


MERGED = {
    STOCK: {"each": [{"cached": 8192, "difference": 0.2}], "processes": []},
    PATCHED: {"each": [{"cached": 8192, "difference": 0.02}], "processes": process(**{sglang_cases.FIX: 3})},
}


@pytest.mark.parametrize(
    "side, change, word",
    [
        (STOCK, {"each": [{"cached": 8192, "difference": 0.09}]}, "no more than"),
        (STOCK, {"each": [{"cached": 100, "difference": 0.2}]}, "were not cached"),
        (STOCK, {"processes": process()}, "was active"),
        (PATCHED, {"each": [{"cached": 8192, "difference": 0.1}]}, "differ by 0.1"),
        (PATCHED, {"processes": process(**{sglang_cases.FIX: 0})}, "corrected nothing"),
        (PATCHED, {"processes": [process(**{sglang_cases.FIX: 3})[0] | {"alive": False}]}, "counts as ended"),
    ],
)
def test_each_check_of_lse_can_fail(side, change, word):
    assert sglang_cases.lse_failures(MERGED) == []
    bad = copy.deepcopy(MERGED)
    bad[side] |= change
    (sentence,) = sglang_cases.lse_failures(bad)
    assert word in sentence


PLANNED = {
    STOCK: {"each": [], "ended": "the process ended", "said": "IndexError: list index out of range", "processes": []},
    PATCHED: {
        "each": [{"cached": 8192, "difference": 0.02}], "compared": {"cached": {"difference": 0.02}},
        "processes": process(**{sglang_cases.HYBRID: 4}),
    },
}  # fmt: skip
ANSWERED = {"each": [{"cached": 8192, "difference": 0.02}], "processes": []}


@pytest.mark.parametrize(
    "side, bad, word",
    [
        (STOCK, ANSWERED, "do not differ"),
        (STOCK, PLANNED[STOCK] | {"processes": process()}, "was active"),
        (PATCHED, PLANNED[PATCHED] | {"processes": process(**{sglang_cases.HYBRID: 0})}, "corrected nothing"),
        (PATCHED, PLANNED[PATCHED] | {"each": [{"cached": 100, "difference": 0.02}]}, "were not cached"),
        (PATCHED, PLANNED[PATCHED] | {"compared": {"cached": {"difference": math.nan}}}, "cached and uncached differ"),
        (PATCHED, PLANNED[PATCHED] | {"ended": "the process ended", "said": "ValueError"}, "was not answered"),
    ],
)
def test_each_check_of_hybrid_can_fail(side, bad, word):
    assert sglang_cases.hybrid_failures(PLANNED) == []
    garbage = {"each": [{"cached": 8192, "difference": 0.9}], "processes": []}
    assert sglang_cases.hybrid_failures(PLANNED | {STOCK: garbage}) == []
    (sentence,) = sglang_cases.hybrid_failures(PLANNED | {side: bad})
    assert word in sentence


PAGE = """# HELP attnfix_corrections_total Calls whose result had to be corrected.
attnfix_corrections_total{engine="vllm",fix="vllm.mla-context-order",release="0.25.1",state="effective"} 3.0
attnfix_calls_total{engine="vllm",fix="vllm.mla-context-order",release="0.25.1",state="effective"} 7.0
vllm:request_success_total{model_name="tiny"} 9.0
"""
SERVED = {
    "requests": 5, "page": {"before": {}, "after": e2e_http.on_page(PAGE)}, "processes": process(**{ORDER: 3}) + process(),
}  # fmt: skip


@pytest.mark.parametrize(
    "change, word",
    [
        ({"page": {"after": {}}}, "the page counts 0 corrections, the records 3"),
        ({"processes": process(**{ORDER: 3})}, "1 processes"),
        ({"processes": [process(**{ORDER: 3})[0] | {"alive": False}]}, "counts as ended"),
    ],
)
def test_each_check_of_metrics_can_fail(change, word):
    assert e2e_http.failures(SERVED, ORDER) == []
    assert any(word in sentence for sentence in e2e_http.failures(SERVED | change, ORDER))


def test_a_page_that_never_counts_is_a_failure():
    nothing = {"requests": 5, "page": {"before": {}, "after": {}}, "processes": process(**{ORDER: 0}) + process()}
    assert "corrected nothing" in e2e_http.failures(nothing, ORDER)[0]


HTTP = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"attnfix_x 1\\n")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.end_headers(); self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def test_an_http_server_is_waited_for_asked_and_ended(tmp_path):
    with e2e_http.Http(["-c", HTTP, "{port}"], "one", tmp_path, {}) as server:
        assert e2e_http.on_page(server.get("/metrics")) == {"attnfix_x": 1}
        assert server.post("/generate", {"input_ids": [1]}) == {"input_ids": [1]}
    assert server.process.returncode is not None
    with pytest.raises(SystemExit, match="two: the server did not start"):
        e2e_http.Http(["-c", "print(1 / 0)", "{port}"], "two", tmp_path, {})


# Verification within the window, and the window itself

VERIFIED = {
    sglang_verify.PLAIN: {"equal tokens": [32, 20]},
    STOCK: {"equal tokens": [1, 3]},
    PATCHED: {"equal tokens": [32, 18], "processes": process(**{sglang_verify.FIX: 3})},
}


@pytest.mark.parametrize(
    "side, change, word",
    [
        (STOCK, {"equal tokens": [30, 20]}, "stock:"),
        (PATCHED, {"equal tokens": [3, 1]}, "patched: 2.0"),
        (PATCHED, {"processes": []}, "corrected nothing"),
    ],
)
def test_each_check_of_verification_can_fail(side, change, word):
    assert sglang_verify.failures(VERIFIED) == []
    (sentence,) = sglang_verify.failures(VERIFIED | {side: VERIFIED[side] | change})
    assert word in sentence


def drafted(short, long=5.8, processes=()):
    return {"accepted": {"short": [short, short], "long": [long, long]}, "processes": list(processes)}


DRAFTED = {sglang_draft_lengths.RIGHT: drafted(5.5)}
for _kind in sglang_draft_lengths.KINDS:
    DRAFTED |= {
        f"{STOCK}, {_kind}": drafted(3.0),
        f"{PATCHED}, {_kind}": drafted(5.4, processes=process(**{sglang_draft_lengths.FIX: 3})),
    }
_FLASHMLA = f"{PATCHED}, flashmla"


@pytest.mark.parametrize(
    "side, change, word",
    [
        (f"{STOCK}, flashinfer", drafted(5.4), "stock, flashinfer: 5.40"),
        (_FLASHMLA, {"accepted": drafted(3.0)["accepted"]}, "flashmla, short prompts: 3.00"),
        (_FLASHMLA, {"accepted": drafted(5.5, 4.0)["accepted"]}, "flashmla, long prompts: 4.00"),
        (_FLASHMLA, {"processes": []}, "corrected nothing"),
        (_FLASHMLA, {"ended": "start: it ended", "said": "why"}, "it ended, why"),
    ],
)
def test_each_check_of_accepted_drafts_can_fail(side, change, word):
    assert sglang_draft_lengths.failures(DRAFTED) == []
    (sentence,) = sglang_draft_lengths.failures(DRAFTED | {side: DRAFTED[side] | change})
    assert word in sentence


def decoded(error, same=5, **more):
    each = [{"tokens": 400, "decode": 0.04}, {"tokens": 900, "decode": error}]
    return {"each": each, "same as stock": [same, 0, 0, 0], **more}


_ACTIVE = process(**{sglang_window_decode.FIX: 3})
DECODED = {
    STOCK: decoded(0.09),
    PATCHED: decoded(0.05, processes=_ACTIVE),
    sglang_window_decode.EAGER: decoded(0.05, processes=_ACTIVE),
    sglang_window_decode.FA3: decoded(0.045),
}


@pytest.mark.parametrize(
    "side, change, complaint",
    [
        (STOCK, decoded(0.05), "stock: 1.11 times"),
        (PATCHED, decoded(0.09), "patched: 2.00 times"),
        (sglang_window_decode.EAGER, decoded(0.09), "patched, no graphs: 2.00 times"),
        (PATCHED, decoded(0.05, same=3), "2 answers within the window"),
        (PATCHED, {"processes": process()}, "corrected nothing"),
    ],
)
def test_window_decode_fails_where_it_should(side, change, complaint):
    assert sglang_window_decode.failures(DECODED) == []
    (sentence,) = sglang_window_decode.failures(DECODED | {side: DECODED[side] | change})
    assert complaint in sentence


def _windows(cold, cached, same=5, alone=5, corrected=3):
    each = [{"cold": cold, "cached": cached}]
    counts = {name: corrected for name in (sglang_windows.SWA, sglang_windows.CAP)}
    kept = {"same as stock": [same] * 5, "same as with the soft cap alone": [alone] * 5}
    return {"each": each, "processes": process(**counts), **kept}


WINDOWS = {
    STOCK: _windows(2.0, 2.0),
    sglang_windows.WINDOW_ALONE: _windows(0.09, 0.09),
    PATCHED: _windows(0.05, 0.05),
    "triton": _windows(0.04, 0.04),
}
AS_FAST = {"tokens per second": {"ratio": 0.99}}


@pytest.mark.parametrize(
    "side, other, says",
    [
        (STOCK, _windows(0.05, 2.0), ["stock, cold: no further"]),
        (STOCK, _windows(2.0, 0.05), ["stock, cached: no further"]),
        (sglang_windows.WINDOW_ALONE, _windows(0.04, 0.09), ["window alone, cold"]),
        (sglang_windows.WINDOW_ALONE, _windows(0.09, 0.09, same=4), ["100 tokens", "400 tokens"]),
        (PATCHED, _windows(0.07, 0.05), ["1.75 times"]),
        (PATCHED, _windows(0.05, 0.05, alone=4), ["100 tokens", "400 tokens"]),
        (PATCHED, _windows(0.05, 0.05, corrected=0), ["swa-prefill corrected nothing", "soft-cap corrected nothing"]),
    ],
)
def test_each_check_of_windows_can_fail(side, other, says):
    assert sglang_windows.failures(WINDOWS, AS_FAST) == []
    found = sglang_windows.failures(WINDOWS | {side: other}, AS_FAST)
    assert len(found) == len(says) and all(word in one for word, one in zip(says, found))


def test_slower_prefill_is_said():
    (sentence,) = sglang_windows.failures(WINDOWS, {"tokens per second": {"ratio": 0.97}})
    assert "0.970 of stock's prefill tokens/s" in sentence


def _prefix(cached, tokens=1000, found=500, same=15, corrected=3):
    each = [{"tokens": tokens, "cached tokens": found, "cold": 0.0, "cached": cached}]
    return {"each": each, "same as stock": same, "processes": process(**{sglang_fp8_prefix.FIX: corrected})}


PREFIX = {STOCK: _prefix(0.5), sglang_fp8_prefix.PAGED: _prefix(0.07), PATCHED: _prefix(0.05)}


@pytest.mark.parametrize(
    "side, other, word",
    [
        (STOCK, _prefix(0.1), "stock:"),
        (PATCHED, _prefix(0.09), "patched: 1.29 times"),
        (PATCHED, _prefix(0.05, found=400), "was not cached"),
        (PATCHED, _prefix(0.05, same=14), "other bits"),
        (PATCHED, _prefix(0.05, corrected=0), "corrected nothing"),
    ],
)
def test_each_check_of_the_calibrated_prefix_can_fail(side, other, word):
    assert sglang_fp8_prefix.failures(PREFIX) == []
    (sentence,) = sglang_fp8_prefix.failures(PREFIX | {side: other})
    assert word in sentence


# q-scale


def _scaled(prefill, decode, corrects=True, same=3):
    process = {"fixes": {vllm_q_scale.FIX: {"counters": {"corrections": 1}}} if corrects else {}, "alive": True}
    each = [{"tokens": 161, "cached tokens": 160, "prefill": prefill, "decode": decode}] * 3
    return {"each": each, vllm_q_scale.SAME: same, "processes": [process] if corrects else []}


def _scales(**sides):
    return {"Triton": _scaled(0.0, 0.0, corrects=False), STOCK: _scaled(0.5, 0.6, corrects=False), **sides}


@pytest.mark.parametrize(
    ("patched", "mixed", "failed"),
    [
        (_scaled(0.02, 0.03, same=0), False, []),
        (_scaled(0.3, 0.03), False, ["patched, prefill: 0.3 from Triton, stock 0.5"]),
        (_scaled(0.02, 0.4), False, ["patched, decode: 0.4 from Triton, stock 0.6"]),
        (_scaled(0.5, 0.03), True, []),
        (_scaled(0.5, 0.03, same=2), True, ["patched: 2 of 3 prefills have stock's bits"]),
    ],
)
def test_scales_of_queries_are_wrong_stock_alone(patched, mixed, failed, monkeypatch):
    monkeypatch.setattr(vllm_q_scale.e2e_vllm, "activity_failures", lambda found, expected: [])
    assert vllm_q_scale.failures(_scales(patched=patched), mixed) == failed


def test_what_follows_a_whole_page_is_one_token(monkeypatch):
    monkeypatch.setattr(vllm_q_scale.e2e_vllm, "activity_failures", lambda found, expected: [])
    found = _scales(patched=_scaled(0.02, 0.03))
    found["patched"]["each"] = [one | {"cached tokens": 144} for one in found["patched"]["each"]]
    assert vllm_q_scale.failures(found, False) == ["patched: a prompt had more than one token that was not cached"]
    assert all(count % vllm_q_scale.PAGE == 1 for count in vllm_q_scale.LENGTHS)
