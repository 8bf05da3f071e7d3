"""sglang.fa3-scheduler-metadata on real releases: which launches keep the schedule that the backend makes ahead."""

from __future__ import annotations

import pytest

#: The heads of the model, those for which the schedule is made, and whether it is, of a backend by its own constructor. The
#: arguments are those of the launch; the process groups are one rank's, and nothing here asks them
CODE = """
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
from attnfix.patches.proofkit.sglang import construction

FA3 = "--attention-backend", "fa3"
served = construction.serve(*FA3, config={**construction.LLAMA, "num_attention_heads": 8}, draft=False)

def heads(*flags):
    served.server_args = construction.server_args(*FA3, *flags)
    args = served.server_args
    served.tp_size = args.tp_size
    if hasattr(served, "ps"):  # who a rank is, from 0.5.16 on
        alone = args.tp_size // args.attn_cp_size
        served.ps = served.ps.trivial(tp_size=args.tp_size, attn_cp_size=args.attn_cp_size, attn_tp_size=alone)
    backend = served.backend("flashattention_backend:FlashAttentionBackend")
    return None if backend._get_scheduler_metadata is None else backend.num_attention_heads

answer([heads("--tp-size", "4"), heads("--tp-size", "4", "--attn-cp-size", "2")])
"""


@pytest.mark.parametrize("release", ["0.5.11", "0.5.14", "0.5.20"])
def test_no_schedule_is_made_ahead_where_ranks_of_a_context_group_have_the_same_heads(engine_fork, release):
    """--attn-cp-size alone: attention has 4 / 2 ranks for its 8 heads, and stock makes the schedule for 8 / 4 of them."""
    environment = engine_fork("sglang", release)
    assert environment.evaluate(CODE, ATTNFIX="0") == [2, 2]
    assert environment.evaluate(CODE) == [2, None]
