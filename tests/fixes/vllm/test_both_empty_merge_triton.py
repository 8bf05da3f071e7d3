"""vllm.both-empty-merge-triton on the engine's own MLA prefill: what the final merge does not read is left alone."""

from __future__ import annotations

import pytest

RUN = """
import attnfix
from types import SimpleNamespace
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm.mla_prefill import Batch
from attnfix.patches.vllm.both_empty_merge_triton.proof import Proof

proof = Proof()
proof.prepare()
said = []
for context in ((40, 35, 0, 0), (40, 0, 35, 0)):
    seen = observe(*proof.outputs(20, Batch(context, (2, 3, 2, 3), decodes=1), backend="fa", ranks=(1,)))
    row = next(row for row in attnfix.status() if row["fix"] == "vllm.both-empty-merge-triton")
    said.append([seen.error if seen.error < 1e9 else None, seen.bits, row["counters"]["corrections"]])
answer(said)
"""


# Model Runner V1 puts requests with context first, and from 0.20.0 the engine says how many tokens those have
@pytest.mark.parametrize("release, right", [("0.19.1", False), ("0.24.0", True)])
def test_a_batch_whose_contexts_lead(engine_fork, release, right):
    off = {"ATTNFIX_VLLM_MLA_CONTEXT_ORDER": "0"}
    (stock, _), (leading, other) = (engine_fork("vllm", release).evaluate(RUN, **way) for way in ({"ATTNFIX": "0"}, off))
    assert (stock[0] is not None and stock[0] < 0.05) is right
    assert leading[0] < 0.05 and leading[2] == (0 if right else 1)
    assert not right or leading[1] == stock[1]
    assert other[2] == leading[2] + 1
