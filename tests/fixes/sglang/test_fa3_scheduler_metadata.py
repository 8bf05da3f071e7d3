"""sglang.fa3-scheduler-metadata on real releases: which launches keep the schedule that the backend makes ahead."""

from __future__ import annotations

import pytest

#: Of a backend by its own constructor: the heads for which the schedule is made; whether the backend still has the kernel that
#: makes it; how often it was corrected. The arguments are those of the launch; the process groups are one rank's, and nothing
#: here asks them
CODE = """
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
import attnfix
from attnfix.patches.lab.sglang import construction

FA3 = "--attention-backend", "fa3"
served = construction.serve(*FA3, config={**construction.LLAMA, "num_attention_heads": 8}, draft=False)
architectures = type(served.model_config.attention_arch)

def corrections():
    rows = [row for row in attnfix.status() if row["fix"] == "sglang.fa3-scheduler-metadata"]
    return sum(row["counters"]["corrections"] for row in rows)

def made(*flags, architecture="MHA"):
    before = corrections()
    served.server_args = construction.server_args(*FA3, "--tp-size", "4", *flags)
    served.model_config.attention_arch = architectures[architecture]
    args = served.server_args
    served.tp_size = args.tp_size
    if hasattr(served, "ps"):  # who a rank is, from 0.5.16 on
        alone = args.tp_size // args.attn_cp_size
        served.ps = served.ps.trivial(tp_size=args.tp_size, attn_cp_size=args.attn_cp_size, attn_tp_size=alone)
    backend = served.backend("flashattention_backend:FlashAttentionBackend")
    return [backend.num_attention_heads, backend._get_scheduler_metadata is not None, corrections() - before]

CP, DP = ("--attn-cp-size", "2"), ("--enable-dp-attention", "--dp-size", "2")
"""
WHOLE_LAUNCHES = "answer([made(), made(*CP)])"
LEFT = "answer([made(*DP), made(*DP, architecture='MLA'), made(*CP, architecture='MLA')])"


@pytest.mark.parametrize("release", ["0.5.11", "0.5.14", "0.5.20"])
def test_no_schedule_is_made_ahead_where_ranks_of_a_context_group_have_the_same_heads(engine_fork, release):
    """--attn-cp-size alone: attention has 4 / 2 ranks for its 8 heads, and stock makes the schedule for 8 / 4 of them."""
    environment = engine_fork("sglang", release)
    assert environment.evaluate(CODE + WHOLE_LAUNCHES, ATTNFIX="0") == [[2, True, 0], [2, True, 0]]
    assert environment.evaluate(CODE + WHOLE_LAUNCHES) == [[2, True, 0], [2, False, 1]]


@pytest.mark.parametrize("release", ["0.5.11", "0.5.12", "0.5.14", "0.5.17"])
def test_a_backend_that_makes_no_schedule_is_left_alone(engine_fork, release):
    """None is made with latent attention; from 0.5.12 on, none under DP attention either."""
    environment = engine_fork("sglang", release)
    stock = environment.evaluate(CODE + LEFT, ATTNFIX="0")
    found = environment.evaluate(CODE + LEFT)
    assert found[1:] == stock[1:] and [one[2] for one in found[1:]] == [0, 0]
    assert found[0] == ([*stock[0][:1], False, 1] if release == "0.5.11" else stock[0])
