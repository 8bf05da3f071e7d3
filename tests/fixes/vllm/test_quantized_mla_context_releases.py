"""vllm.quantized-mla-context in real releases: which layers each of them fails, and another fix on the same loop."""

from __future__ import annotations

import pytest

HEAD = """
from attnfix.patches.vllm.quantized_mla_context import proof

proven = proof.Proof()
proven.prepare()
wrong = [name for name in proven.bug if not proven.run(name, 5).error < 0.01]
"""


@pytest.mark.parametrize(
    ("release", "expected"),
    [("0.17.1", ["awq", "int32", "uint8"]), ("0.19.1", ["int32", "uint8"]), ("0.20.0", ["awq", "int32"]), ("0.28.0", [])],
)
def test_what_the_engine_fails(engine_fork, release, expected):
    assert engine_fork("vllm", release).evaluate(HEAD + "answer(wrong)", ATTNFIX="0") == expected


def test_beside_a_fix_that_stands_around_the_same_loop(engine_fork):
    code = HEAD + (
        "from attnfix.patches.vllm.prefill_context_merge import proof as merge\n"
        "proven.batch = merge._MIXED\n"
        "wrong += [name for name in proven.bug if not proven.run(name, 5).error < 0.01]\n"
        "import attnfix\n"
        "answer([wrong, sorted(row['fix'] for row in attnfix.status() if row['counters']['corrections'])])"
    )
    wrong, corrected = engine_fork("vllm", "0.19.1").evaluate(code, ATTNFIX_VLLM_PREFILL_CONTEXT_MERGE="1")
    assert wrong == [] and corrected == ["vllm.prefill-context-merge", "vllm.quantized-mla-context"]
