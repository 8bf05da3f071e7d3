"""vllm.dcp-fa2-split: order and padding of a step without an engine, and a refused launch on real releases."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dcp_fa2_split.fix import FIX
from tests.support import one_call

BUILD, SPLIT = (one_call.target_of(FIX, name) for name in ("build", "run_split_fa2_dcp_context_attention"))


class Builder:
    """The engine's, as far as it counts: decodes, then contexts up to the first new prompt."""

    def __init__(self, ranks=2, version=2):
        self.dcp_world_size, self.layer_names = ranks, ["layer"]
        layers = {"layer": SimpleNamespace(impl=SimpleNamespace(vllm_flash_attn_version=version))}
        self.vllm_config = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=layers))

    def build(self, common_attn_metadata):
        starts, lens = common_attn_metadata.query_start_loc_cpu, common_attn_metadata.seq_lens_cpu_upper_bound
        new = starts.diff().tolist()
        decodes = next((b for b, n in enumerate(new) if n > 1), len(new))
        behind = range(decodes, len(new))
        first = next((b for b in behind if lens is not None and new[b] > 1 and lens[b] == new[b]), len(new))
        return SimpleNamespace(
            num_decode_reqs=decodes, num_prefill_reqs=first - decodes, num_decode_tokens=int(starts[decodes]),
            num_prefill_tokens=starts[first] - starts[decodes],
            dcp_context_kv_lens=None if lens is None else lens - starts.diff(),  # of a rank that holds all
        )  # fmt: skip


class Engine:
    """Its split, with a kernel that gives each row the number of its keys, and is wrong without any."""

    def __init__(self):
        self.called = None

    def run_split(self):
        def run_split_fa2_dcp_context_attention(
            dcp_context_kv_lens, cu_seqlens_q, num_decode_reqs, num_context_prefill_reqs, num_decode_tokens,
            num_context_prefill_tokens,
        ):  # fmt: skip
            self.called = num_decode_reqs, num_context_prefill_reqs, int(num_context_prefill_tokens)
            rows, at = int(cu_seqlens_q[-1]), cu_seqlens_q.tolist()
            out, lse = torch.zeros(rows, 2, 8), torch.full((2, rows), -torch.inf)
            for b in range(num_decode_reqs + num_context_prefill_reqs):
                keys = int(dcp_context_kv_lens[b])
                out[at[b] : at[b + 1]] = lse[:, at[b] : at[b + 1]] = keys or torch.nan
            assert at[num_decode_reqs + num_context_prefill_reqs] == num_decode_tokens + num_context_prefill_tokens
            return out, lse

        return run_split_fa2_dcp_context_attention


def run(context, new, known=True, **builder):
    """(decodes, contexts, their tokens, corrections) of a batch of requests with `context` tokens before `new` ones.

    And how many keys each request's rows have seen: None where they are neutral."""
    starts = torch.tensor([0, *new], dtype=torch.int32).cumsum(0).int()
    lens = torch.tensor(context, dtype=torch.int32) + torch.tensor(new, dtype=torch.int32)
    common = SimpleNamespace(
        query_start_loc_cpu=starts, max_query_len=max(new), seq_lens_cpu_upper_bound=lens if known else None
    )
    state, engine = FixState(FIX), Engine()
    made = one_call.run(BUILD, Builder.build, state, Builder(**builder), common_attn_metadata=common)
    if not known:
        return state.counters.corrections, None
    before = vars(made) | {"dcp_context_kv_lens": made.dcp_context_kv_lens.clone()}
    out, lse = one_call.run(
        SPLIT, engine.run_split(), state, made.dcp_context_kv_lens, starts, made.num_decode_reqs, made.num_prefill_reqs,
        made.num_decode_tokens, made.num_prefill_tokens,
    )  # fmt: skip
    assert all(value is vars(made)[name] for name, value in before.items() if name != "dcp_context_kv_lens")
    assert before["dcp_context_kv_lens"].equal(made.dcp_context_kv_lens)  # of the builder: every layer reads it
    seen = []
    for start, stop in pairwise(starts):
        if start < stop:
            values, sums = out[start:stop].unique().tolist(), lse[:, start:stop].unique().tolist()
            seen.append(None if (values, sums) == ([0], [-torch.inf]) else values[0])
    return (*engine.called, state.counters.corrections), seen


@pytest.mark.parametrize(
    ("context", "new", "counted", "seen"),
    [
        ((0, 64), (2, 3), (0, 2, 5), [None, 64]),
        ((67, 0, 189), (1, 4, 59), (1, 2, 63), [67, None, 189]),
        ((0, 20), (5, 1), (0, 2, 6), [None, 20]),  # a decode behind a new prompt
        ((9, 0, 33, 0), (1, 2, 4, 5), (1, 2, 6), [9, None, 33, None]),  # the last new prompt stays out
        ((9, 30, 0, 33, 0, 0), (1, 3, 2, 4, 5, 0), (1, 3, 9), [9, 30, None, 33, None]),  # so does padding
        ((0, 0, 33), (1, 2, 4), (1, 2, 6), [None, None, 33]),  # a new prompt of one token counts as a decode
    ],
)
def test_a_context_behind_a_new_prompt_is_counted(context, new, counted, seen):
    assert run(context, new) == ((*counted, 1), seen)


@pytest.mark.parametrize(
    ("context", "new", "counted"),
    [
        ((64, 0), (3, 2), (0, 1, 3)),
        ((20, 64, 0, 0), (1, 3, 2, 5), (1, 1, 3)),
        ((0, 0), (2, 3), (0, 0, 0)),
        ((20, 0), (4, 4), (0, 1, 4)),
        ((20, 30), (4, 4), (0, 2, 8)),  # drafts of two requests
        ((20, 30), (1, 1), (2, 0, 0)),
        ((20, 0, 7), (3, 2, 0), (0, 1, 3)),  # lengths left in padded rows
        ((0, 20, 0), (1, 3, 2), (1, 1, 3)),  # a new prompt of one token counts as a decode
    ],
)
def test_a_batch_in_order_is_the_engines_own(context, new, counted):
    assert run(context, new)[0] == (*counted, 0)


@pytest.mark.parametrize("builder", [{"ranks": 1}, {"version": 3}, {"version": 4}, {"version": None}])
def test_others_are_left_alone(builder):
    assert run((0, 64), (2, 3), **builder)[0][-1] == 0


def test_without_lengths_on_the_host_the_engine_counts_all():
    assert run((0, 64), (2, 3), known=False)[0] == 0


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
