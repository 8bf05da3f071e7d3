"""vllm.lse-log-base in a real release, beside every other fix of MLA prefill: kernels that return base 2, and empty rows."""

from __future__ import annotations

import pytest

HEAD = """
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill, uninitialised

mla = MlaPrefill()
mla.prepare()
NEW = (23, 12, 24, 15)
UNEQUAL, FRESH, NOT_FIRST = Batch((70, 20, 0, 0), NEW), Batch((70, 65, 0, 0), NEW, decodes=2), Batch((0, 70, 0, 65), NEW)

def run(batch, backend="trtllm_ragged"):
    mla.use(lse_base=2)
    with uninitialised(7.0):
        return observe(*mla.outputs(5, batch, backend)).error

def states(*fixes):
    import attnfix
    found = {row["fix"]: (row["state"], row["counters"]["corrections"] > 0) for row in attnfix.status()}
    return [found[f"vllm.{fix}"] for fix in fixes]
"""
ON = {"ATTNFIX_VLLM_PREFILL_CONTEXT_MERGE": "1", "ATTNFIX_VLLM_SKIP_CONTEXT_ZERO_FILL": "1"}
DONE = ["effective", True]


@pytest.mark.parametrize("release", ["0.14.1", "0.19.1"])
def test_with_the_final_merge_that_skips_prefixes(engine_fork, release):
    """It hangs a number on the LSE, and neutralises rows before the conversion."""
    code = HEAD + (
        "errors = [run(batch) for batch in (UNEQUAL, FRESH, NOT_FIRST)]\n"
        "answer([max(errors), states('lse-log-base', 'prefill-context-merge', 'skip-context-zero-fill')])"
    )
    worst, states = engine_fork("vllm", release).evaluate(code, **ON)
    assert worst < 0.01 and states == [DONE] * 3


@pytest.mark.parametrize("release", ["0.20.2", "0.25.1"])
def test_with_rows_that_are_neutralised_and_an_order_that_is_wrong(engine_fork, release):
    code = HEAD + (
        "errors = [run(UNEQUAL), run(NOT_FIRST), run(FRESH, 'fi')]\n"
        "answer([max(errors), states('lse-log-base', 'empty-context-chunks', 'mla-context-order')])"
    )
    worst, states = engine_fork("vllm", release).evaluate(code)
    assert worst < 0.01 and states == [DONE] * 3
