"""The two fixes of a merge of two empty parts, in real releases: each corrects behind its own kernel alone."""

from __future__ import annotations

import pytest

CODE = """
from attnfix.patches.vllm.both_empty_merge_cuda.proof import Proof
import attnfix

proof = Proof()
proof.prepare()
proof.merge_on(cuda={cuda})
seen = proof.scenario(5)
answer([seen.error < 0.01, seen.bits, sorted(row["fix"] for row in attnfix.status() if row["counters"]["corrections"])])
"""


@pytest.mark.parametrize(
    ("release", "cuda", "corrected"),
    [
        ("0.10.1", True, ["vllm.both-empty-merge-cuda"]),  # has no loop of several ranks
        ("0.11.0", True, ["vllm.both-empty-merge-cuda"]),
        ("0.11.0", False, ["vllm.both-empty-merge-triton"]),
        ("0.19.1", True, []),
        ("0.19.1", False, ["vllm.both-empty-merge-triton"]),
    ],
)
def test_the_kernel_that_merges_decides(engine_fork, release, cuda, corrected):
    environment, code = engine_fork("vllm", release), CODE.format(cuda=cuda)
    _, stock, _ = environment.evaluate(code, ATTNFIX="0")
    right, bits, found = environment.evaluate(code)
    assert right and found == corrected and (bits == stock) is (not corrected)


def test_beside_a_fix_that_merges_at_the_end(engine_fork):
    """What prefill-context-merge notes on the LSE is still there after the rows were neutralised."""
    right, _, found = engine_fork("vllm", "0.19.1").evaluate(CODE.format(cuda=False), ATTNFIX_VLLM_PREFILL_CONTEXT_MERGE="1")
    assert right and "vllm.both-empty-merge-triton" in found
