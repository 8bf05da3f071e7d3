"""vllm.dcp-decode-lse-base in real releases: the only two that combine FlashInfer's decode with base e."""

from __future__ import annotations

import pytest

HEAD = """
from attnfix.patches.proofkit.proof import replaced
from attnfix.patches.vllm.dcp_decode_lse_base import proof

proven = proof.Proof()
proven.prepare()

def state():
    import attnfix
    row = next(row for row in attnfix.status() if row["fix"] == "vllm.dcp-decode-lse-base")
    return row["state"], row["counters"]["corrections"], row["counters"]["calls"]
"""


@pytest.mark.parametrize("release", ["0.11.1", "0.11.2"])
def test_ranks_combine_what_the_kernel_meant(engine_fork, release):
    """Natural LSEs are left alone; a rank whose share of every request is empty judges nothing, and asks no GPU."""
    code = HEAD + (
        "natural = [proven.control(5).error, state()]\n"
        "base_2 = [proven.scenario(5).error, state()]\n"
        "with replaced(proof, '_CONTEXT', (0, 0)):\n"
        "    one_token = proven.scenario(5).error\n"
        "answer([natural, base_2, one_token])"
    )
    natural, base_2, one_token = engine_fork("vllm", release).evaluate(code)
    assert natural[0] < 0.001 and natural[1][1] == 0 and natural[1][2] > 0
    assert base_2[0] < 0.01 and base_2[1][0] == "effective"
    assert one_token < 0.01


def test_later_releases_are_left_alone(engine_fork):
    code = (
        "import vllm.v1.attention.backends.flashinfer, attnfix\n"
        "answer([row['state'] for row in attnfix.status() if row['fix'] == 'vllm.dcp-decode-lse-base'])"
    )
    assert engine_fork("vllm", "0.12.0").evaluate(code) == ["fixed upstream"]
