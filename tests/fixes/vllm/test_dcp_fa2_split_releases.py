"""vllm.dcp-fa2-split in real releases: where our kernel cannot run, the engine's own result comes out."""

from __future__ import annotations

import pytest

RUN = """
import attnfix
from attnfix import kernels
from attnfix.patches.vllm.dcp_fa2_split.proof import Proof

proof = Proof()
proof.prepare()

def refused(*args, **options):
    raise RuntimeError("the driver refuses the launch")

kernels.fixup_zero_kv_rows = refused
bits = [seen.bits for seen in proof.scenario(5)]
row = next(row for row in attnfix.status() if row["fix"] == "vllm.dcp-fa2-split")
answer([bits, row["state"], row["counters"]["corrections"], row["reason"]])
"""


@pytest.mark.parametrize("release", ["0.26.0", "0.33.0"])
def test_a_launch_that_is_refused_leaves_the_engines_bits(engine_fork, release):
    """The split is run again as its caller called it: it fills its output anew, and no rank waits for another in it."""
    stock, *_ = engine_fork("vllm", release).evaluate(RUN, ATTNFIX="0")
    bits, state, corrections, reason = engine_fork("vllm", release).evaluate(RUN)
    assert bits == stock
    assert (state, corrections) == ("failed", 0) and "refuses the launch" in reason
