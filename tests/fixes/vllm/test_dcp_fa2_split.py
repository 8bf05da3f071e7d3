"""vllm.dcp-fa2-split without an engine: which batches are counted anew, and how. The proof runs the engine's own code."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dcp_fa2_split.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "build")


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
        )  # fmt: skip


def run(context, new, known=True, **builder):
    """(decodes, contexts, their tokens, corrections) of a batch of requests with `context` tokens before `new` ones."""
    lens = torch.tensor(context, dtype=torch.int32) + torch.tensor(new, dtype=torch.int32)
    common = SimpleNamespace(
        query_start_loc_cpu=torch.tensor([0, *new], dtype=torch.int32).cumsum(0).int(), max_query_len=max(new),
        seq_lens_cpu_upper_bound=lens if known else None,
    )  # fmt: skip
    state = FixState(FIX)
    made = one_call.run(TARGET, Builder.build, state, Builder(**builder), common_attn_metadata=common)
    return made.num_decode_reqs, made.num_prefill_reqs, int(made.num_prefill_tokens), state.counters.corrections


@pytest.mark.parametrize(
    ("context", "new", "counted"),
    [
        ((0, 64), (2, 3), (0, 2, 5)),
        ((67, 0, 189), (1, 4, 59), (1, 2, 63)),
        ((0, 20), (5, 1), (0, 2, 6)),  # a decode behind a new prompt
        ((9, 0, 33, 0), (1, 2, 4, 5), (1, 2, 6)),  # the last new prompt stays out
        ((9, 30, 0, 33, 0, 0), (1, 3, 2, 4, 5, 0), (1, 3, 9)),  # so does padding
    ],
)
def test_a_context_behind_a_new_prompt_is_counted(context, new, counted):
    assert run(context, new) == (*counted, 1)


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
    assert run(context, new) == (*counted, 0)


@pytest.mark.parametrize("builder", [{"ranks": 1}, {"version": 3}, {"version": 4}, {"version": None}, {"known": False}])
def test_others_are_left_alone(builder):
    assert run((0, 64), (2, 3), **builder)[3] == 0
