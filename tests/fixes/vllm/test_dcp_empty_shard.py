"""vllm.dcp-empty-shard on layers of the engine's own making: which backends and combines it corrects, and which it leaves."""

from __future__ import annotations

import pytest

from attnfix.compat.releases import fetch
from attnfix.patches.vllm.dcp_empty_shard.wrap import ALL_GATHER, ALL_TO_ALL, leaves_out

TRITON, CUTLASS = "triton_mla.TritonMLABackend", "cutlass_mla.CutlassMLABackend"
FLASHINFER, TOKENSPEED = "flashinfer_mla.FlashInferMLABackend", "tokenspeed_mla.TokenspeedMLABackend"
SHORT = (1, 37, 1, 12)  # the first and the third leave a rank without KV
FIX = "vllm.dcp-empty-shard"

#: Runs each case; says its error, its exact bits, how many corrections it took, and what was made neutral
RUN = """
import torch
import attnfix
from attnfix.patches.lab.vllm.mla_decode import Decode, Empty
from attnfix.patches.lab.proof import observe

from attnfix.patches.vllm.dcp_empty_shard import wrap

masked, neutralize = set(), wrap.neutralize
def spied(out, lse, *args):
    masked.update(name for name, tensor in (("out", out), ("lse", lse)) if tensor is not None)
    neutralize(out, lse, *args)
wrap.neutralize = spied

def row():
    return next(row for row in attnfix.status() if row["fix"] == "vllm.dcp-empty-shard")

said = []
for backend, combine, empty in CASES:
    masked.clear()
    before = row()["counters"]["corrections"]
    seen = observe(*Decode(backend, tokens=SHORT, combine=combine, empty=Empty(*empty)).run(20))
    after = row()
    error = seen.error if seen.error < 1e9 else None
    said.append([error, seen.bits, after["counters"]["corrections"] - before, sorted(masked), after["state"], after["reason"]])
answer(said)
"""
GARBAGE, NAN = ("garbage", "garbage"), ("nan", "garbage")


def ran(engine_fork, release, *cases, **environment):
    code = f"CASES, SHORT = {list(cases)!r}, {SHORT!r}\n{RUN}"
    return engine_fork("vllm", release).evaluate(code, **environment)


def test_each_backend_is_corrected_where_it_is_wrong_and_no_more(engine_fork):
    right = TRITON, "ag_rs", GARBAGE
    wrong = (
        (TRITON, "a2a", GARBAGE),
        (CUTLASS, "ag_rs", GARBAGE),
        (CUTLASS, "ag_rs", NAN),
        (TOKENSPEED, "ag_rs", GARBAGE),
        (FLASHINFER, "a2a", ("nan", "-inf")),  # what FlashInfer says of trtllm-gen's kernel
    )
    (stock_right, *stock), (left, *fixed) = (ran(engine_fork, "0.27.1", right, *wrong, **off) for off in ({"ATTNFIX": "0"}, {}))
    _, bits, corrections, masked, state, reason = left
    assert stock_right[0] < 0.01 and bits == stock_right[1] and corrections == 0 and masked == []
    assert state == "fixed upstream" and "TritonMLAImpl all-gather" in reason
    assert all(error is None or error > 0.05 for error, *_ in stock)
    assert all(error is not None and error < 0.01 and corrections > 0 for error, _, corrections, *_ in fixed), fixed
    # The LSE is enough but for the all-to-all; and Triton's kernel has written it
    assert [masked for *_, masked, _state, _reason in fixed] == [["out"], ["lse"], ["lse"], ["lse"], ["lse", "out"]]
    assert {state for *_, state, _reason in fixed} == {"effective"}


def test_before_0_25_the_output_is_masked_too(engine_fork):
    cases = (TRITON, "ag_rs", GARBAGE), (CUTLASS, "ag_rs", NAN)
    stock, fixed = (ran(engine_fork, "0.19.1", *cases, **off) for off in ({"ATTNFIX": "0"}, {}))
    assert [error for error, *_ in stock] == [None] * 2
    assert all(error is not None and error < 0.01 for error, *_ in fixed), fixed
    assert [masked for *_, masked, _state, _reason in fixed] == [["out"], ["lse", "out"]]


@pytest.mark.parametrize("release", ["0.11.0", "0.22.1", "0.24.0", "0.25.0", "0.27.1"])
def test_what_the_combines_do_with_a_weight_of_0(release):
    homes = [fetch.fetch("vllm", release) / "vllm" / folder for folder in ("v1/attention/ops", "attention/ops")]
    texts = {path.name: path.read_text() for home in homes for path in home.glob("*.py")}
    assert ("output = tl.where(factor == 0.0, 0.0, output)" in texts["common.py"]) is leaves_out(ALL_GATHER, release)
    assert ("weight == 0.0, 0.0" in texts.get("dcp_alltoall.py", "")) is leaves_out(ALL_TO_ALL, release)
