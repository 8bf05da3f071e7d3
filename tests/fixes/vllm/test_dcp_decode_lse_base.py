"""vllm.dcp-decode-lse-base in real releases: the only two that combine FlashInfer's decode with base e."""

from __future__ import annotations

import pytest

HEAD = """
from attnfix.patches.scenario import replaced
from attnfix.patches.vllm.dcp_decode_lse_base import proof
from attnfix.prove.child import imported_modules

proof.prepare(imported_modules(proof))

def state():
    import attnfix
    row = next(row for row in attnfix.status() if row["fix"] == "vllm.dcp-decode-lse-base")
    return row["state"], row["counters"]["corrections"], row["counters"]["calls"]
"""


@pytest.mark.parametrize("release", ["0.11.1", "0.11.2"])
def test_ranks_combine_what_the_kernel_meant(engine_fork, release):
    """Natural LSEs are left alone; a rank whose share of every request is empty judges nothing, and asks no GPU."""
    code = HEAD + (
        "natural = [proof.control(5).error, state()]\n"
        "base_2 = [proof.scenario(5).error, state()]\n"
        "with replaced(proof, '_CONTEXT', (0, 0)):\n"
        "    one_token = proof.scenario(5).error\n"
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
