"""vllm.stale-draft-placeholders without an engine: which steps have placeholders for no drafts, and what a model reads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.stale_draft_placeholders.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "_preprocess")
IDS, RIGHT = [7, 9, 8, 6, -1, -1, -1, 5], [7, 9, 8, 6, 0, 0, -1, 5]
DRAFTS = {"a": [-1, -1], "b": [-1, -1]}


def preprocess(self, scheduler_output, num_input_tokens, intermediate_tensors=None):
    return self.input_ids.gpu.tolist()


def step(drafts=DRAFTS, sampled=("a",), tensor=1, pipeline=1, hybrid=False, ahead=True):
    """(what the model reads of a step of six tokens, corrections, requests that they were for)"""
    runner = SimpleNamespace(
        use_async_scheduling=ahead, model_config=SimpleNamespace(is_hybrid=hybrid),
        parallel_config=SimpleNamespace(tensor_parallel_size=tensor, pipeline_parallel_size=pipeline),
        input_batch=SimpleNamespace(prev_req_id_to_index=None if sampled is None else dict.fromkeys(sampled, 0)),
        input_ids=SimpleNamespace(gpu=torch.tensor(IDS, dtype=torch.int32)),
    )  # fmt: skip
    state = FixState(FIX)
    found = one_call.run(TARGET, preprocess, state, runner, SimpleNamespace(scheduled_spec_decode_tokens=drafts), 6)
    return found, state.counters.corrections, state.counters.rows


@pytest.mark.parametrize("sampled, requests", [(("a",), 1), (("c",), 2), ((), 2), (None, 2)])
def test_no_token_of_a_step_stays_a_placeholder(sampled, requests):
    assert step(sampled=sampled) == (RIGHT, 1, requests)


@pytest.mark.parametrize(
    "more",
    [
        {"sampled": ("a", "b")}, {"sampled": ("b", "c", "a")}, {"drafts": {}}, {"ahead": False}, {"tensor": 2}, {"pipeline": 2},
        {"hybrid": True},
    ],
)  # fmt: skip
def test_other_steps_are_left_alone(more):
    assert step(**more) == (IDS, 0, 0)
